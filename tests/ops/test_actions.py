"""Operator actions on jobs, queues and workers."""

import logging

import pytest

from forge_jobs.core.errors import BadName, BadOption, Conflict, NotFound
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.ops import actions, queries
from forge_jobs.ops.actions import Action, JobActions, restrict_filter
from forge_jobs.store.queues import QueueChange
from tests.ops.harness import StoreHarness

ANY = Selection(filter=Filter())


async def status(harness: StoreHarness, job_id: str) -> JobStatus:
    return (await queries.get_record(harness.store, job_id)).status


@pytest.mark.parametrize(
    ("action", "stray"),
    [
        (Action.RETRY, JobStatus.PENDING),
        (Action.RETRY, JobStatus.RUNNING),
        (Action.RETRY, JobStatus.DONE),
        (Action.DELETE, JobStatus.RUNNING),
        (Action.CANCEL, JobStatus.DONE),
        (Action.RUN_NOW, JobStatus.DEAD),
    ],
)
async def test_A6_an_action_by_filter_refuses_states_it_does_not_apply_to(
    harness: StoreHarness, action: Action, stray: JobStatus
) -> None:
    with pytest.raises(BadOption, match=f"{action} does not apply to {stray} jobs"):
        await harness.actions.preview(action, Filter(statuses=(stray,)))


async def test_A6_a_retry_without_a_state_reaches_no_pending_or_done_job(
    harness: StoreHarness,
) -> None:
    (dead,) = await harness.dead_jobs(1)
    (waiting,) = await harness.enqueue(1)
    acted = await harness.actions.retry(ANY)
    assert (acted.changed, acted.skipped) == (1, 0)
    assert await status(harness, dead) is JobStatus.PENDING
    assert await status(harness, waiting) is JobStatus.PENDING


def test_a_restricted_filter_keeps_its_other_conditions() -> None:
    wide = Filter(queue="q", kind="k", tag="t", dedupe_key="d", error="e", enqueued_from=1)
    tight = restrict_filter(Action.RETRY, wide)
    assert (tight.queue, tight.kind, tight.tag, tight.dedupe_key) == ("q", "k", "t", "d")
    assert (tight.error, tight.enqueued_from) == ("e", 1)
    assert set(tight.statuses) == {JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED}


async def test_A7_a_bulk_retry_runs_in_batches_reports_each_and_ends(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH_SIZE", 10)
    await harness.dead_jobs(25)
    progress_calls: list[Acted] = []
    acted = await harness.actions.retry(ANY, progress=progress_calls.append)
    assert acted.changed == 25
    assert [step.changed for step in progress_calls] == sorted(
        step.changed for step in progress_calls
    )
    assert len(progress_calls) >= 3
    assert progress_calls[-1] == acted
    preview = await harness.actions.preview(Action.RETRY, Filter())
    assert preview.jobs == 0


async def test_A7_of_several_dead_jobs_with_one_key_one_is_retried(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    for _ in range(3):
        await harness.enqueue_jobs(NewJob(kind="send", queue="mail", dedupe_key="welcome:1"))
        (claimed,) = await harness.claim()
        await harness.kill(claimed)
    acted = await harness.actions.retry(ANY)
    assert (acted.changed, acted.skipped) == (1, 2)


async def test_A10_a_retried_job_has_all_its_attempts_again(harness: StoreHarness) -> None:
    (job_id,) = await harness.dead_jobs(1, max_attempts=5)
    await harness.actions.retry(Selection(ids=(job_id,)))
    job = await queries.job(harness.store, job_id, clock=harness.clock)
    assert (job.status, job.attempts) == (JobStatus.PENDING, 0)


async def test_ids_may_be_many_mixed_and_lower_case(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH_SIZE", 2)
    dead = await harness.dead_jobs(3)
    (waiting,) = await harness.enqueue(1)
    missing = "01JABCDEFGHJKMNPQRSTVWXYZ0"
    ids = (*(job_id.lower() for job_id in dead), dead[0], waiting, missing)
    acted = await harness.actions.retry(Selection(ids=ids))
    assert (acted.changed, acted.skipped, acted.missing) == (3, 1, 1)


async def test_an_invalid_id_is_refused_before_any_change(harness: StoreHarness) -> None:
    (dead,) = await harness.dead_jobs(1)
    with pytest.raises(BadOption, match="'nonsense' is not a job id"):
        await harness.actions.retry(Selection(ids=(dead, "nonsense")))
    assert await status(harness, dead) is JobStatus.DEAD


async def test_cancel_ends_waiting_jobs_and_requests_it_of_running_ones(
    harness: StoreHarness,
) -> None:
    running, waiting = await harness.enqueue(2)
    await harness.register_worker("mail")
    await harness.claim()
    acted = await harness.actions.cancel(ANY)
    assert (acted.changed, acted.requested) == (1, 1)
    assert await status(harness, waiting) is JobStatus.CANCELLED
    job = await queries.job(harness.store, running, clock=harness.clock)
    assert (job.status, job.cancel_requested_at is not None) == (JobStatus.RUNNING, True)


async def test_L4_deleting_a_running_job_is_reported_as_a_request(harness: StoreHarness) -> None:
    running, waiting = await harness.enqueue(2)
    await harness.register_worker("mail")
    await harness.claim()
    acted = await harness.actions.delete(Selection(ids=(running, waiting)))
    assert (acted.changed, acted.requested) == (1, 1)
    assert await status(harness, running) is JobStatus.RUNNING
    assert await harness.store.jobs.get(waiting) is None


async def test_A6_a_delete_by_filter_leaves_running_jobs_alone(harness: StoreHarness) -> None:
    running, _ = await harness.enqueue(2)
    await harness.register_worker("mail")
    await harness.claim()
    acted = await harness.actions.delete(ANY)
    assert (acted.changed, acted.requested) == (1, 0)
    job = await queries.job(harness.store, running, clock=harness.clock)
    assert job.cancel_requested_at is None


async def test_run_now_makes_scheduled_jobs_due(harness: StoreHarness) -> None:
    (later,) = await harness.enqueue(1, delay_s=3_600)
    acted = await harness.actions.run_now(Selection(ids=(later,)))
    assert acted.changed == 1
    assert await status(harness, later) is JobStatus.PENDING


async def test_a_duplicate_has_the_same_fields_without_the_dedupe_key(
    harness: StoreHarness,
) -> None:
    (original,) = await harness.enqueue_jobs(
        NewJob(
            kind="send", queue="mail", payload=b'{"a":1}', priority=-3, max_attempts=2,
            tags=("vip",), dedupe_key="once", delay_s=60, options={"rare": 1},
        )
    )  # fmt: skip
    copied = await harness.actions.duplicate(Selection(ids=(original,)))
    (copy_id,) = copied.ids
    copy = await queries.job(harness.store, copy_id, clock=harness.clock)
    assert copied.acted.changed == 1
    assert copy_id != original
    assert copy.status is JobStatus.PENDING
    assert (copy.kind, copy.queue, copy.payload) == ("send", "mail", {"a": 1})
    assert (copy.priority, copy.max_attempts, copy.tags) == (-3, 2, ("vip",))
    assert copy.dedupe_key is None
    stored = await harness.store.jobs.get(copy_id)
    assert stored is not None
    assert stored.options == {"rare": 1, "parent": original, "via": "copy"}


async def test_duplicating_by_filter_copies_each_once(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH_SIZE", 2)
    await harness.enqueue(5)
    copied = await harness.actions.duplicate(Selection(filter=Filter(queue="mail")))
    assert copied.acted.changed == 5
    assert (await queries.count(harness.store, Filter(queue="mail"))).jobs == 10


async def test_settings_change_one_by_one(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=10)
    await harness.actions.set_queue("mail", QueueChange(slots=3, retain_done_s=None))
    await harness.actions.set_queue("mail", QueueChange(backoff_enabled=True, backoff_base_s=1))
    queue = await queries.queue(harness.store, "mail", clock=harness.clock)
    assert (queue.slots, queue.retain_done_s) == (3, None)
    assert (queue.backoff_enabled, queue.backoff_base_s) == (True, 1)
    assert queue.retain_dead_s == 30 * 86_400


async def test_an_unknown_queue_is_not_created_by_accident(harness: StoreHarness) -> None:
    with pytest.raises(NotFound, match="no queue 'mial'"):
        await harness.actions.pause("mial")
    with pytest.raises(BadName, match="queue 'a b'"):
        await harness.actions.pause("a b")
    await harness.actions.set_queue("fresh", QueueChange(slots=4), create=True)
    assert (await queries.queue(harness.store, "fresh")).slots == 4


async def test_A17_a_queue_with_jobs_but_without_settings_can_be_paused(
    harness: StoreHarness,
) -> None:
    await harness.enqueue(1, queue="stray")
    await harness.actions.pause("stray")
    assert (await queries.queue(harness.store, "stray")).paused


async def test_a_value_out_of_range_is_refused(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=10)
    with pytest.raises(BadOption):
        await harness.actions.set_queue("mail", QueueChange(slots=-1))


async def test_a_worker_is_found_by_id_prefix_or_label(harness: StoreHarness) -> None:
    await harness.register_worker("mail", host_id="01HOSTA", label="a")
    await harness.register_worker("mail", host_id="01HOSTB", label="b")
    assert await harness.actions.quiet("b") == "01HOSTB"
    assert await harness.actions.quiet("01hostA") == "01HOSTA"
    assert all(worker.quiet for worker in await queries.workers(harness.store, clock=harness.clock))
    await harness.actions.quiet("a", quiet=False)
    first, _ = await queries.workers(harness.store, clock=harness.clock)
    assert not first.quiet
    with pytest.raises(Conflict, match="fits 2 workers"):
        await harness.actions.quiet("01HOST")
    with pytest.raises(NotFound, match="no living worker"):
        await harness.actions.quiet("nobody")


async def test_each_action_writes_one_audit_entry(harness: StoreHarness) -> None:
    (dead,) = await harness.dead_jobs(1)
    await harness.actions.retry(Selection(ids=(dead,)))
    await harness.actions.cancel(Selection(filter=Filter(queue="mail")))
    await harness.actions.pause("mail")
    await harness.actions.set_queue("mail", QueueChange(slots=2))
    await harness.actions.quiet("01HOSTA")
    progress_calls = [(entry.actor, entry.action, entry.subject) for entry in harness.audit.entries]
    assert progress_calls == [
        ("ada", "retry", dead),
        ("ada", "cancel", "jobs where queue=mail"),
        ("ada", "pause", "mail"),
        ("ada", "set queue", "mail"),
        ("ada", "quiet", "01HOSTA"),
    ]
    assert harness.audit.entries[0].detail["changed"] == 1
    assert harness.audit.entries[3].detail == {"slots": 2}


async def test_without_a_given_audit_actions_are_logged(
    harness: StoreHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.store.queues.ensure("mail", slots=1)
    with caplog.at_level(logging.INFO, logger="forge_jobs.audit"):
        await JobActions(harness.store, actor="ada", clock=harness.clock).pause("mail")
    (record,) = caplog.records
    assert (record.__dict__["actor"], record.__dict__["action"]) == ("ada", "pause")
