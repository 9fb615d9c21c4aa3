"""`python -m benchmarks`: measure Forge Jobs and its peers and print the targets."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from benchmarks import against, profiling, report
from benchmarks.bench import OURS, Size, open_bench
from benchmarks.measures import GROUPS, MEASURES
from benchmarks.run import audit, progress, run
from benchmarks.systems import OWN, PACKAGES

DEFAULT_ROUNDS = 5
EVERYTHING = ",".join(GROUPS)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"rounds of each measure ({DEFAULT_ROUNDS})")
    parser.add_argument(
        "--quick", action="store_true", help="smoke run in seconds; its figures mean nothing"
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        help=f"some of: {','.join(MEASURES)}; or all of {' or '.join(GROUPS)}",
        default=EVERYTHING,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    parser.add_argument("--peers-only", action="store_true", help="leave Forge Jobs out")
    parser.add_argument("--ours-only", action="store_true", help="leave the peers out")
    parser.add_argument("--no-audit", action="store_true", help="skip the count of commits")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a must is missed")
    parser.add_argument(
        "--profile", choices=sorted(profiling.PROFILED), help="show where our own time goes"
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare this tree with an earlier commit in alternating windows; --only names some"
        f" of: {','.join(against.ROWS)}",
    )
    options = parser.parse_args(arguments)
    if options.against:
        if not against.is_commit(options.against):
            parser.error(f"--against: git knows no commit {options.against!r}")
        options.only = list(against.ROWS) if options.only == EVERYTHING else options.only.split(",")
        unknown = [name for name in options.only if name not in against.ROWS]
        if unknown:
            parser.error(
                f"--only: no row {', '.join(unknown)}; there are {', '.join(against.ROWS)}"
            )
        return options
    options.only = [
        name for chosen in options.only.split(",") for name in GROUPS.get(chosen, (chosen,))
    ]
    unknown = [name for name in options.only if name not in MEASURES]
    if unknown:
        parser.error(f"--only: no measure {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.peers_only and options.ours_only:
        parser.error("--peers-only and --ours-only exclude each other")
    return options


def systems(options: argparse.Namespace) -> frozenset[str] | None:
    if options.peers_only:
        return frozenset(PACKAGES) - OWN
    return OWN if options.ours_only else None


def leave(number: int, _: object) -> NoReturn:
    """SIGTERM ends the run like Ctrl-C does: workers are stopped and stores removed on the way."""
    sys.exit(128 + number)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when everything ran and every row was there, 1 when not, 2 for a wrong call."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, leave)
    if options.profile:
        return profiling.profile(options.profile)
    rounds = options.rounds or (1 if options.quick else DEFAULT_ROUNDS)
    with open_bench(Size(rounds, options.quick), systems(options)) as bench:
        if not bench.has(OURS) and not options.peers_only:
            progress("Forge Jobs cannot be run here yet: peers only")
        facts = report.machine(bench.home)
        if options.against:
            durability, results = [], against.compare(bench, options.against, options.only)
        else:
            audited = not options.no_audit and not set(options.only).isdisjoint(GROUPS["sqlite"])
            durability = audit(bench) if audited else []
            results = run(bench, options.only, durability)
        print(report.text(bench, facts, durability, results))
        if options.json:
            options.json.write_text(report.as_json(bench, facts, durability, results))
    if any(result.failures or result.problems for result in results):
        return 1
    return 1 if options.strict and report.missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
