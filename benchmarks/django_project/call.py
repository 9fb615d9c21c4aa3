"""Enqueue in the measured project: ``call.py seed 10000``, ``enqueue 200``, ``trickle 20 PATH``.
Prints one JSON object."""

import json
import os
import sys
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")

import django

django.setup()

from django.db import transaction
from loads.tasks import noop, stamp

BATCH = 500
# More than a poll of any peer, and no multiple of one.
GAP_S = 0.37


def seed(jobs):
    """Not timed: in large transactions."""
    for first in range(0, jobs, BATCH):
        with transaction.atomic():
            for _ in range(min(BATCH, jobs - first)):
                noop.enqueue()
    return {"jobs": jobs}


def enqueue(calls):
    """Blocks of atomic() with one task each, as of a request; milliseconds with the commit."""
    noop.enqueue()
    begun = time.perf_counter()
    for _ in range(calls):
        with transaction.atomic():
            noop.enqueue()
    return {"milliseconds": (time.perf_counter() - begun) * 1_000 / calls}


def trickle(calls, path):
    """One task at a time for an idle worker."""
    for _ in range(calls):
        stamp.enqueue(time.monotonic(), path)
        time.sleep(GAP_S)
    return {"calls": calls}


if __name__ == "__main__":
    verb, count, *rest = sys.argv[1:]
    verbs = {"seed": seed, "enqueue": enqueue, "trickle": trickle}
    print(json.dumps(verbs[verb](int(count), *rest)))
