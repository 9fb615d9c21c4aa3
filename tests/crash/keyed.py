"""One process of many that enqueue the same dedupe key: ``python -m tests.crash.keyed URL TRIES``.

Prints the ids it got and how often the reply meant a new job.
"""

import json
import sys

from forge_jobs import Forge


def main(url: str, tries: int) -> None:
    with Forge(url) as forge:
        jobs = [
            forge.enqueue("welcome", {"user": 42}, queue="mail", dedupe_key="welcome:42")
            for _ in range(tries)
        ]
    fresh = sum(not job.duplicate for job in jobs)
    print(json.dumps({"ids": sorted({job.id for job in jobs}), "fresh": fresh}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
