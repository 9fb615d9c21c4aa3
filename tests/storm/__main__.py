"""``python -m tests.storm``: run a storm, show it, judge it. Exit code 1 when a promise broke."""

import argparse
import random
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.storm.checks import Judgement, judge
from tests.storm.rig import Options, Rig, StormFailed

QUICK = Options(
    jobs=600, kills=12, workers=3, producers=2, lease_s=1.0, every_s=0.6, slots=30, drain_s=30
)


def main() -> int:
    options, keep = _options()
    folder = Path(tempfile.mkdtemp(prefix="forge-storm-"))
    print(
        f"Storm: {options.jobs:,} jobs, {options.kills} kills over {options.workers} workers and "
        f"{options.producers} producers, lease {options.lease_s:g} s, seed {options.seed}."
    )
    try:
        evidence = Rig(options, folder, lambda line: print(line, flush=True)).run()
    except StormFailed as failure:
        print(f"FAILED: {failure}\nHistories: {folder}")
        return 1
    judgement = judge(evidence)
    report(judgement)
    if not judgement.clean:
        print(f"FAILED. Histories: {folder}\nAgain: python -m tests.storm --seed {options.seed}")
        return 1
    if keep:
        print(f"Histories: {folder}")
    else:
        shutil.rmtree(folder)
    print("Every promise was kept.")
    return 0


def report(judgement: Judgement) -> None:
    for name, figure in judgement.figures.items():
        print(f"  {name:<28} {figure}")
    for name, found in judgement.findings.items():
        print(f"  {name:<28} {len(found)}")
        for finding in found[:10]:
            print(f"      {finding}")


def _options() -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--producers", type=int)
    parser.add_argument("--lease", type=float, dest="lease_s")
    parser.add_argument("--every", type=float, dest="every_s", help="mean seconds between kills")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--quick", action="store_true", help="the small storm of the tests")
    parser.add_argument("--keep", action="store_true", help="keep the histories")
    given = vars(parser.parse_args())
    keep, quick = given.pop("keep"), given.pop("quick")
    chosen = {name: value for name, value in given.items() if value is not None}
    return replace(QUICK if quick else Options(), **chosen), keep


if __name__ == "__main__":
    sys.exit(main())
