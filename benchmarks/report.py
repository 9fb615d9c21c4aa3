"""Turns results into a table of at most 100 columns, and into JSON with every figure."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import tempfile
import textwrap
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import Outcome, Series, Target, Verdict
from benchmarks.run import Durability, Result
from benchmarks.systems import PACKAGES

WIDTH = 100
UNPRINTED = {"each"}
DISTRIBUTIONS = {
    "forge": "forge-jobs",
    "forge-postgres": "forge-jobs",
    "raw-sql": "asyncpg",
    "raw-steps": "asyncpg",
    "absurd": "absurd-sdk",
    "gateway": "forge-jobs",
}


def machine(home: Path) -> dict[str, str]:
    """Where the figures come from. Figures of different machines do not compare."""
    return {
        "processors": str(os.cpu_count()),
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "fsync": f"{fsync_microseconds(home):.0f} µs (median of 200)",
        "load": load(),
    }


def load() -> str:
    """The load average over 1, 5 and 15 minutes."""
    return " ".join(f"{share:.1f}" for share in os.getloadavg())


def fsync_microseconds(home: Path) -> float:
    """One 4 KB write and its fsync, in the directory the stores live in."""
    spans = list[float]()
    with tempfile.TemporaryFile(dir=home, buffering=0) as file:
        for _ in range(200):
            started = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fsync(file.fileno())
            spans.append(time.perf_counter() - started)
    return statistics.median(spans) * 1e6


def versions(bench: Bench) -> str:
    known = list[str]()
    for system in PACKAGES:
        if bench.has(system):
            known.append(f"{system} {metadata.version(DISTRIBUTIONS.get(system, system))}")
        else:
            known.append(f"{system} not installed")
    return " · ".join(known)


def number(value: float) -> str:
    """Three significant digits, and no decimals where nobody reads them."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def heading(text: str) -> list[str]:
    return ["", text, "─" * min(WIDTH, len(text))]


def figure_lines(series: Series) -> list[str]:
    """One block per system and figure: the median, then every round."""
    lines = list[str]()
    for (system, name), values in sorted(series.values.items()):
        if name in UNPRINTED:
            continue
        unit = series.units[system, name]
        head = f"{system:<24}{name:<20}{number(statistics.median(values)):>10} {unit:<7}"
        rounds = " ".join(number(value) for value in values)
        folded = textwrap.wrap(rounds, WIDTH - len(head) - 2) or [""]
        lines.append(f"{head}  {folded[0]}")
        lines += [" " * (len(head) + 2) + rest for rest in folded[1:]]
    return lines


def bar(target: Target, bound: float | None) -> str:
    return "–" if bound is None else f"{target.sense.value} {bound:g} {target.unit}"


def target_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The verdicts. A miss is printed in the same place and size as a success."""
    head = f"{'target':<47}{'must':>9}{'aim':>9}{'measured':>11}  verdict"
    lines = [head, "─" * WIDTH]
    for outcome in outcomes:
        target = outcome.target
        must, aim = bar(target, target.must), bar(target, target.aim)
        measured = "–" if outcome.measured is None else f"{number(outcome.measured)} {target.unit}"
        title = textwrap.wrap(target.text, 46)
        lines.append(f"{title[0]:<47}{must:>9}{aim:>9}{measured:>11}  {outcome.verdict.value}")
        lines += [f"  {rest}" for rest in title[1:]]
        detail = outcome.note
        if outcome.verdict is Verdict.UNEQUAL:
            detail += "; the audit saw commits of ours at another level: not the same durability"
        if outcome.low is not None and outcome.high is not None:
            bounds = f"90 % interval {number(outcome.low)}–{number(outcome.high)}"
            detail = f"{bounds}; {detail}" if detail else bounds
        if detail:
            lines += [f"    {line}" for line in textwrap.wrap(detail, WIDTH - 4)]
    return lines


def text(
    bench: Bench, facts: dict[str, str], durability: Sequence[Durability], results: Sequence[Result]
) -> str:
    """The whole report."""
    lines = heading("Forge Jobs beside its peers")
    lines += [f"{name:<12}{value}" for name, value in facts.items()]
    lines += textwrap.wrap(f"versions    {versions(bench)}", WIDTH, subsequent_indent=" " * 12)
    kind = "quick run: proves the frame, its figures mean nothing" if bench.size.quick else "whole"
    lines.append(f"{'run':<12}{kind}, {bench.size.rounds} rounds, systems interleaved")
    if durability:
        lines += heading("Durability, counted from the commits of an untimed run")
        lines += [piece for one in durability for piece in folded(one.text)]
    for result in results:
        lines += heading(f"{result.title} ({result.name}, {result.seconds:.0f} s)")
        lines += figure_lines(result.series)
        lines += [piece for note in result.failures for piece in folded(f"ROUND FAILED {note}")]
        lines += [piece for note in result.problems for piece in folded(f"ROWS WRONG {note}")]
    if bench.facts:
        lines += heading("Noted on the way")
        lines += [piece for fact in bench.facts for piece in folded(fact)]
    outcomes = [outcome for result in results for outcome in result.outcomes]
    judged = [outcome for outcome in outcomes if outcome.target.must is not None]
    others = [one for one in outcomes if one.target.must is None and one.measured is not None]
    lines += heading("Targets")
    lines += target_lines(judged)
    if others:
        lines += heading("Beside the targets")
        lines += target_lines(others)
    wrong = sum(len(result.problems) for result in results)
    broken = sum(len(result.failures) for result in results)
    other = sum(not one.as_said for one in durability)
    summary = (
        f"row counts: {'all as expected' if not wrong else f'{wrong} wrong'};"
        f" rounds that failed: {broken};"
        f" durability: {spelled_durability(len(durability), other)};"
        f" load at the end: {load()}"
    )
    lines += ["", *folded(summary)]
    return "\n".join(lines).lstrip("\n")


def spelled_durability(audited: int, other: int) -> str:
    if not audited:
        return "not audited"
    return f"{other} of {audited} NOT AS SAID" if other else "as said"


def folded(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ") or [""]


def as_json(
    bench: Bench, facts: dict[str, str], durability: Sequence[Durability], results: Sequence[Result]
) -> str:
    """Every figure of every round, for machines."""
    document: dict[str, Any] = {
        "machine": facts,
        "versions": versions(bench),
        "rounds": bench.size.rounds,
        "quick": bench.size.quick,
        "durability": [{"text": one.text, "as_said": one.as_said} for one in durability],
        "notes": bench.facts,
        "measures": {
            result.name: {
                "title": result.title,
                "seconds": result.seconds,
                "figures": [
                    {
                        "system": system,
                        "name": name,
                        "unit": result.series.units[system, name],
                        "median": statistics.median(values),
                        "rounds": values,
                    }
                    for (system, name), values in result.series.values.items()
                ],
                "targets": [outcome_json(outcome) for outcome in result.outcomes],
                "problems": result.problems,
                "failures": result.failures,
            }
            for result in results
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    target = outcome.target
    return {
        "key": target.key,
        "text": target.text,
        "sense": target.sense.value,
        "must": target.must,
        "aim": target.aim,
        "unit": target.unit,
        "measured": outcome.measured,
        "interval_90": None if outcome.low is None else [outcome.low, outcome.high],
        "verdict": outcome.verdict.value,
        "note": outcome.note,
    }


def missed(results: Sequence[Result]) -> bool:
    verdicts = [outcome.verdict for result in results for outcome in result.outcomes]
    return Verdict.MISSED in verdicts or Verdict.UNEQUAL in verdicts
