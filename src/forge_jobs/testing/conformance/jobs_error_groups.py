"""Error groups: every failed attempt is counted once, in the group of its cause."""

import asyncio

import pytest

from forge_jobs.core.error_groups import HOUR, MAX_SAMPLES, OTHER, ErrorGroup, GroupState
from forge_jobs.core.instant import MINUTE, SECOND
from forge_jobs.core.outcome import AnyOutcome, Crashed, Dead, Done, Failed, Missing
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .drivers import CRASH_NOTE
from .worker import LEASE_S, Process, claim_of, enqueue, record

# Where the number of groups is bounded.
_COUNTING = ("shared.error_groups", "postgres.error_groups")
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/mail.py", line {line}, in send
    connect(host)
  File "/usr/lib/python3.12/site-packages/smtp.py", line 8, in connect
    raise ConnectionError(host)
ConnectionError: {message}"""


@pytest.mark.asyncio
class TestErrorGroups:
    """``ErrorGroupStore``, ``AttemptError.group`` and ``Filter.group``."""

    async def test_failures_of_one_cause_are_one_group(self, store: Store, worker: Process) -> None:
        answers = [await enqueue(store) for _ in range(3)]
        for n, job in enumerate(await worker.claim(free=3)):
            await worker.finish(job, _failed(f"no route to 10.0.0.{n}:25", line=n + 1))
        [group] = await store.error_groups.seen()
        assert (group.type, group.message, group.frame, group.count) == (
            "ConnectionError", "no route to <address>", "mail.py in send", 3,
        )  # fmt: skip
        assert (group.kinds, group.queues) == ({"work": 3}, {"q": 3})
        assert (group.workers, group.versions) == ({"label of host-1": 3}, {"1.2.3": 3})
        assert sorted(group.samples) == sorted(answer.id for answer in answers)
        assert group.latest.startswith("ConnectionError: no route to 10.0.0.")
        assert await store.error_groups.get(group.id) == group
        assert await store.error_groups.get("unknown") is None

    async def test_other_types_messages_and_frames_are_other_groups(
        self, store: Store, worker: Process
    ) -> None:
        for _ in range(4):
            await enqueue(store)
        jobs = await worker.claim(free=4)
        await worker.send_finishes(
            worker.build_finish(jobs[0], _failed("down")),
            worker.build_finish(jobs[1], _failed("gone")),
            worker.build_finish(jobs[2], Failed("ConnectionError: down")),
            worker.build_finish(jobs[3], Failed("ValueError: down")),
        )
        groups = await store.error_groups.seen()
        assert sorted((group.type, group.message, group.frame) for group in groups) == [
            ("ConnectionError", "down", ""), ("ConnectionError", "down", "mail.py in send"),
            ("ConnectionError", "gone", "mail.py in send"), ("ValueError", "down", ""),
        ]  # fmt: skip

    async def test_an_attempt_has_the_id_of_its_group(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        for outcome in (Failed("a"), Crashed("b"), Dead("c")):
            await worker.finish(await worker.claim_one(), outcome)
            await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
        stored = await record(store, answer.id)
        by_message = {group.message: group.id for group in await store.error_groups.seen()}
        assert [(error.message, error.group) for error in stored.errors] == [
            (name, by_message[name]) for name in "abc"
        ]
        assert {error.owner for error in stored.errors} == {worker.key}
        assert all(error.started_at and error.due_at for error in stored.errors)

    async def test_the_jobs_of_a_group_are_found(self, store: Store, worker: Process) -> None:
        answers = [await enqueue(store) for _ in range(4)]
        jobs = await worker.claim(free=4)
        await worker.finish(jobs[0], Failed("a"))
        await worker.finish(jobs[1], Dead("a"))
        await worker.finish(jobs[2], Dead("b"))
        await worker.finish(jobs[3], Done())
        group = next(one for one in await store.error_groups.seen() if one.message == "a")
        wanted = Filter(group=group.id)
        assert await _found(store, wanted) == [answers[1].id, answers[0].id]
        assert (await store.metrics.count(wanted, cap=10)).jobs == 2
        dead = Filter(group=group.id, statuses=(JobStatus.DEAD,))
        assert await _found(store, dead) == [answers[1].id]
        assert await _found(store, Filter(group="none")) == []
        first = await store.jobs.page(wanted, limit=1)
        assert first.next is not None
        rest = await store.jobs.page(wanted, limit=1, after=first.next)
        assert [job.id for job in (*first.jobs, *rest.jobs)] == [answers[1].id, answers[0].id]

    async def test_a_job_is_of_the_group_of_its_last_failure(
        self, store: Store, worker: Process
    ) -> None:
        answer = await enqueue(store)
        for outcome in (Failed("a"), Failed("b")):
            await worker.finish(await worker.claim_one(), outcome)
            await store.jobs.act(BulkAction.RUN_NOW, Selection(ids=(answer.id,)), limit=1)
        ids = {group.message: group.id for group in await store.error_groups.seen()}
        assert await _found(store, Filter(group=ids["a"])) == []
        assert await _found(store, Filter(group=ids["b"])) == [answer.id]
        await worker.finish(await worker.claim_one(), Done())
        assert await _found(store, Filter(group=ids["b"])) == [answer.id]

    async def test_the_jobs_of_a_group_are_retried(self, store: Store, worker: Process) -> None:
        answers = [await enqueue(store) for _ in range(3)]
        jobs = await worker.claim(free=3)
        for job, message in zip(jobs, "aab", strict=True):
            await worker.finish(job, Dead(message))
        group = next(one for one in await store.error_groups.seen() if one.message == "a")
        selection = Selection(filter=Filter(group=group.id, statuses=(JobStatus.DEAD,)))
        assert (await store.jobs.act(BulkAction.RETRY, selection, limit=10)).changed == 2
        statuses = [(await record(store, answer.id)).status for answer in answers]
        assert statuses == [JobStatus.PENDING, JobStatus.PENDING, JobStatus.DEAD]

    async def test_a_repeated_or_refused_finish_is_not_counted(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        other = await Process.register(store, clock, host_id="host-2")
        await enqueue(store)
        job = await worker.claim_one()
        finish = worker.build_finish(job, Failed("a"))
        verdicts = await other.send_finishes(other.build_finish(job, Failed("a")))
        verdicts += await worker.send_finishes(finish)
        verdicts += await worker.send_finishes(finish)
        assert verdicts == [Verdict.STALE, Verdict.APPLIED, Verdict.ALREADY]
        assert [group.count for group in await store.error_groups.seen()] == [1]

    async def test_what_is_no_failure_is_not_counted(self, store: Store, worker: Process) -> None:
        answers = [await enqueue(store) for _ in range(4)]
        jobs = await worker.claim(free=4)
        cancelled = Selection(ids=(answers[0].id,))
        await store.jobs.act(BulkAction.CANCEL, cancelled, reason="enough", limit=1)
        await worker.finish(jobs[0], Failed("a"))
        await worker.finish(jobs[1], Missing())
        await worker.finish(jobs[2], Done())
        await worker.exchange(release=[claim_of(jobs[3])])
        assert await store.error_groups.seen() == []
        assert [error.group for error in (await record(store, answers[0].id)).errors] == [None]

    async def test_attempts_of_dead_processes_are_counted(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        answers = [await enqueue(store) for _ in range(3)]
        # The second job was claimed and never started.
        await worker.claim(free=1, prefetch=1)
        clock.advance(LEASE_S)
        await store.jobs.reap(crash_note=CRASH_NOTE, limit=10)
        [group] = await store.error_groups.seen()
        assert (group.message, group.count, group.samples) == (CRASH_NOTE, 1, (answers[0].id,))
        assert (group.workers, group.kinds) == ({"label of host-1": 1}, {"work": 1})
        assert await _found(store, Filter(group=group.id)) == [answers[0].id]

    async def test_a_group_is_resolved_and_returns(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        group = await _fail(store, worker, Failed("a"))
        assert (group.state, group.resolved_at) == (GroupState.OPEN, None)
        clock.advance(60)
        assert await store.error_groups.resolve([group.id, "unknown"], by="ann") == 1
        resolved = await store.error_groups.get(group.id)
        assert resolved is not None
        assert (resolved.state, resolved.resolved_by) == (GroupState.RESOLVED, "ann")
        assert resolved.resolved_at == clock.now()
        await worker.advance(1)
        returned = await _fail(store, worker, Failed("a"))
        assert (returned.state, returned.count) == (GroupState.RETURNED, 2)
        assert returned.returned_at == clock.now()
        assert await store.error_groups.reopen([group.id]) == 1
        reopened = await store.error_groups.get(group.id)
        assert reopened is not None
        assert reopened.state is GroupState.OPEN

    async def test_the_trend_has_minutes_and_hours(self, store: Store, worker: Process) -> None:
        await _fail(store, worker, Failed("a"))
        for _ in range(13):
            await worker.advance(10)
        group = await _fail(store, worker, Failed("a"))
        now = worker.clock.now()
        minutes, hours = group.minutes.points(MINUTE), group.hours.points(HOUR)
        assert sum(count for _, count in minutes) == sum(count for _, count in hours) == 2
        assert minutes[-1] == (now - now % MINUTE, 1)
        assert hours[-1][0] == now - now % HOUR
        assert group.count_since(now - 60 * SECOND) == 1
        assert group.count_since(now - HOUR) == 2
        assert (group.last_at, group.first_at) == (now, now - 130 * SECOND)

    async def test_a_group_is_bounded(self, store: Store, worker: Process) -> None:
        for n in range(60):
            await enqueue(store, kind=f"kind{n}")
        jobs = await worker.claim(free=60)
        await worker.send_finishes(*(worker.build_finish(job, Dead("a")) for job in jobs))
        [group] = await store.error_groups.seen()
        assert group.count == 60
        assert (len(group.kinds), group.kinds[OTHER]) == (51, 10)
        assert len(group.samples) == MAX_SAMPLES

    async def test_old_groups_are_purged(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        await _fail(store, worker, Failed("a"))
        before = clock.now() + 1
        await worker.advance(1)
        await _fail(store, worker, Failed("b"))
        while await store.error_groups.roll_up(limit=1):
            pass
        assert await store.error_groups.purge(before=before, limit=0) == 0
        assert await store.error_groups.purge(before=before, limit=10) == 1
        assert [group.message for group in await store.error_groups.seen()] == ["b"]
        assert await store.error_groups.seen(since=clock.now() + 1) == []

    async def test_a_full_store_makes_room_of_what_was_not_seen_for_a_day(
        self, store: Store, worker: Process, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in _COUNTING:
            monkeypatch.setattr(f"forge_jobs.backends.{module}.MAX_GROUPS", 2, raising=False)
        for message in ("old", "young", "late"):
            await _fail(store, worker, Failed(message))
            await worker.advance(10)
        found = {group.id: group.message for group in await store.error_groups.seen()}
        assert found[OTHER].startswith("failures of more than")
        assert sorted(found.values())[1:] == ["old", "young"]
        for _ in range(24 * 60 + 1):
            worker.clock.advance(60)
        worker = await Process.register(store, worker.clock, host_id="host-2")
        await _fail(store, worker, Failed("young"))
        await _fail(store, worker, Failed("new"))
        assert {"new", "young"} <= {group.message for group in await store.error_groups.seen()}
        assert "old" not in {group.message for group in await store.error_groups.seen()}

    async def test_two_readers_at_once_count_everything_once(
        self, store: Store, worker: Process
    ) -> None:
        for _ in range(20):
            await enqueue(store)
        for job in await worker.claim(free=20):
            await worker.finish(job, Dead("a"))
        await asyncio.gather(*(store.error_groups.seen() for _ in range(4)))
        assert [group.count for group in await store.error_groups.seen()] == [20]


def _failed(message: str, *, line: int = 1) -> AnyOutcome:
    outcome = Failed(f"ConnectionError: {message}")
    outcome.traceback = TRACEBACK.format(line=line, message=message)
    return outcome


async def _fail(store: Store, worker: Process, outcome: AnyOutcome) -> ErrorGroup:
    await enqueue(store)
    await worker.finish(await worker.claim_one(), outcome)
    return (await store.error_groups.seen())[0]


async def _found(store: Store, wanted: Filter) -> list[str]:
    return [job.id for job in (await store.jobs.page(wanted, limit=10)).jobs]
