"""Runs many seeds, in this process or over several, and reports them in their order."""

import os
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from rigs.simulation.excerpt import LAST, excerpt
from rigs.simulation.sizes import draw_size
from rigs.simulation.world import Options, SimulationResult, simulate

_MAX_SHOWN = 20
# A process takes a second to start, as long as a seed takes.
_SEEDS_WORTH_A_PROCESS = 10


@dataclass(frozen=True)
class SeedReport:
    """What is left of a simulation: the lines to print, why it failed, and what it counted."""

    seed: int
    lines: list[str] = field(default_factory=list[str])
    failure: str = ""
    seen: Counter[str] = field(default_factory=Counter[str])
    virtual_s: float = 0.0


def default_processes(seeds: int) -> int:
    """One process per processor, and fewer for few seeds."""
    return max(1, min(os.cpu_count() or 1, seeds // _SEEDS_WORTH_A_PROCESS))


def run_seed(
    seed: int,
    options: Options,
    *,
    twice: bool = False,
    trace: bool = False,
    varied: bool = False,
) -> SeedReport:
    """Simulate one seed. ``twice``: again, to compare; ``trace``: with every event; ``varied``: in
    a size that the seed draws, at most that of the options."""
    if varied:
        options = draw_size(seed, options)
    ended = simulate(seed, options)
    lines = ended.history.lines() if trace else []
    failure = ""
    if ended.violations:
        failure = _failure(ended)
    elif twice and simulate(seed, options).history.records != ended.history.records:
        failure = f"seed {seed} is not deterministic: its second run differs from the first"
    return SeedReport(seed, lines, failure, ended.seen, ended.virtual_s)


@contextmanager
def run_seeds(
    seeds: Sequence[int],
    options: Options,
    *,
    processes: int,
    twice: bool,
    trace: bool,
    varied: bool = False,
) -> Generator[Iterator[SeedReport], None, None]:
    """The reports in the order of the seeds. On exit the seeds that have not begun are dropped."""
    run = partial(run_seed, options=options, twice=twice, trace=trace, varied=varied)
    if processes == 1:
        yield map(run, seeds)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        yield pool.map(run, seeds)
    finally:
        pool.shutdown(cancel_futures=True)


def _failure(ended: SimulationResult) -> str:
    options = ended.options
    given = f"--jobs {options.jobs} --nodes {options.nodes} --minutes {options.minutes:g}"
    if options.workflows != Options().workflows:
        given += f" --workflows {options.workflows}"
    if options.bound:
        given += f" --bound {options.bound}"
    violations = ended.violations
    lines = [f"\nseed {ended.seed} broke {len(violations)} invariants ({given}):"]
    lines += [f"  {violation.rule}: {violation.text}" for violation in violations[:_MAX_SHOWN]]
    if len(violations) > _MAX_SHOWN:
        lines.append(f"  … and {len(violations) - _MAX_SHOWN} more")
    first = violations[0]
    what = "of the simulation" if first.key is None else f"around job {first.key}"
    lines.append(f"\nthe last {LAST} events {what}:")
    lines += excerpt(ended.history, first)
    lines.append(f"\nreplay: python -m rigs.simulation --seed {ended.seed} {given} --trace")
    return "\n".join(lines)
