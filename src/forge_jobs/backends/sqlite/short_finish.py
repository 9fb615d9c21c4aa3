"""The short path of a finish: plain jobs that succeeded, one statement per epoch."""

from collections.abc import Sequence
from typing import Final

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.decide import Finish
from forge_jobs.core.status import JobStatus

from .io.operation import RunAlone
from .io.transaction import Tx
from .json_text import as_json

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "exchange.sql")

_DONE: Final = SQL["done"]
_DONE_RANGE: Final = SQL["done_range"]
_DONE_WITH_RESULT: Final = SQL["done_with_result"]


def finish_done(tx: Tx, owner: int, finishes: Sequence[Finish], *, timed: bool) -> None:
    """Finish plain jobs that succeeded. Raises RunAlone if one of the claims is not current, or its
    job is not plain; the exchange then runs once more, row by row.

    The caller knows that none of them has successors, a dedupe key or a cancel request.
    """
    now, counters = tx.now, tx.counters
    without_result: dict[int, list[int]] = {}
    with_result: dict[int, list[tuple[int, str]]] = {}
    groups: dict[tuple[str, str], list[Finish]] = {}
    for finish in finishes:
        result = finish.result
        if result is None:
            without_result.setdefault(finish.epoch, []).append(finish.key)
        else:
            with_result.setdefault(finish.epoch, []).append((finish.key, result.decode()))
        groups.setdefault((finish.queue, finish.kind), []).append(finish)
    for epoch, keys in without_result.items():
        low, high = min(keys), max(keys)
        if high - low + 1 == len(keys) == len(set(keys)):
            updated = tx.execute(_DONE_RANGE, (now, low, high, epoch, owner)).rowcount
        else:
            updated = tx.execute(_DONE, (now, as_json(keys), epoch, owner)).rowcount
        if updated != len(keys):
            raise RunAlone
    for epoch, results in with_result.items():
        values = (now, as_json(results), epoch, owner)
        if tx.execute(_DONE_WITH_RESULT, values).rowcount != len(results):
            raise RunAlone
    for (queue, kind), group in groups.items():
        counters.transitioned(queue, kind, JobStatus.RUNNING, JobStatus.DONE, len(group))
        if timed:
            counters.finished(queue, kind, group)
    for finish in finishes:
        if finish.tags:
            counters.tagged(finish, JobStatus.DONE, timed=timed)
