"""``python -m rigs.simulation``: run seeds, or replay one.

Exit code 0 if every check passed, 1 if one failed, 2 for an invalid command line.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from forge_jobs.kit.clock import SYSTEM_CLOCK
from rigs.simulation.campaign import default_processes, run_seeds
from rigs.simulation.coverage import REQUIRED_EVENTS
from rigs.simulation.cron_command import NODES as CRON_NODES
from rigs.simulation.cron_command import run_cron
from rigs.simulation.world import Options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the seeds that the command line selects."""
    arguments = _parser().parse_args(argv)
    seeds = (
        [arguments.seed]
        if arguments.seed is not None
        else list(range(arguments.first, arguments.first + arguments.seeds))
    )
    if arguments.cron:
        return run_cron(
            seeds,
            days=arguments.days,
            nodes=arguments.nodes or CRON_NODES,
            twice=arguments.twice,
            progress=_progress,
        )
    options = Options(
        jobs=arguments.jobs,
        workflows=arguments.workflows,
        bound=arguments.bound,
        nodes=arguments.nodes or Options().nodes,
        minutes=arguments.minutes,
    )
    began, seen, virtual_s = SYSTEM_CLOCK.mono(), Counter[str](), 0.0
    processes = arguments.processes or default_processes(len(seeds))
    with run_seeds(
        seeds,
        options,
        processes=processes,
        twice=arguments.twice,
        trace=arguments.trace,
        varied=arguments.varied,
    ) as reports:
        for number, report in enumerate(reports, 1):
            if report.lines:
                print("\n".join(report.lines))
            if report.failure:
                print(report.failure)
                return 1
            seen.update(report.seen)
            virtual_s += report.virtual_s
            _progress(number, len(seeds), SYSTEM_CLOCK.mono() - began)
    nodes = f"up to {options.nodes}" if arguments.varied else str(options.nodes)
    _summary(len(seeds), nodes, seen, virtual_s, SYSTEM_CLOCK.mono() - began)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rigs.simulation",
        description="Simulate the real engine on the memory backend with faults in virtual time.",
        epilog="example: python -m rigs.simulation --seed 7 --trace",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=_count, default=100, help="how many seeds (100)")
    which.add_argument("--seed", type=int, help="replay this seed")
    defaults = Options()
    parser.add_argument(
        "--processes", type=_count, help="run the seeds in so many processes (one per processor)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--jobs", type=_count, default=defaults.jobs, help="jobs per seed")
    parser.add_argument(
        "--workflows", type=int, default=defaults.workflows, help="jobs with steps per seed"
    )
    parser.add_argument(
        "--bound", type=int, default=defaults.bound, help="additional jobs with limits and lanes"
    )
    parser.add_argument(
        "--nodes", type=_count, help=f"worker processes ({defaults.nodes}, {CRON_NODES} of cron)"
    )
    parser.add_argument(
        "--minutes", type=float, default=defaults.minutes, help="virtual minutes of faults"
    )
    parser.add_argument(
        "--varied", action="store_true", help="each seed draws its size, at most the given one"
    )
    parser.add_argument("--cron", action="store_true", help="simulate cron only, for --days")
    parser.add_argument("--days", type=float, default=30.0, help="virtual days of cron (30)")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("use a whole number from 1")
    return number


def _progress(number: int, total: int, took_s: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{number} of {total} seeds, {took_s:.0f} s", end="", file=sys.stderr, flush=True)
        if number == total:
            print(file=sys.stderr)
    elif number == total or number % 25 == 0:
        print(f"{number} of {total} seeds, {took_s:.0f} s", file=sys.stderr, flush=True)


def _summary(seeds: int, nodes: str, seen: Counter[str], virtual_s: float, took_s: float) -> None:
    print(
        f"{seeds} seeds, {nodes} nodes, {virtual_s / 3600:.1f} virtual hours in "
        f"{took_s:.1f} s: every check passed."
    )
    for name, count in sorted(seen.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count:>10,}  {name}")
    for name in REQUIRED_EVENTS:
        if not seen[name]:
            print(f"  {'never':>10}  {name}")


if __name__ == "__main__":
    sys.exit(main())
