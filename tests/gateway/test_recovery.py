"""Recovery at the start: what a killed process had in hand is free before the server listens."""

from forge_jobs import JobStatus
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process, all_jobs
from tests.gateway.conftest import Bots, post, update

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"


async def test_p_the_janitor_recovers_at_the_start_what_a_dead_process_had_in_hand(
    bots: Bots,
) -> None:
    first = bots.gateway(ECHO)
    assert first.forge is not None
    async with first.running(workers=False):
        await post(first, "echo", update(1, "in hand"))
        store = await first.forge.aready()
        (waiting,) = await all_jobs(store)
        process = await Process.register(store, MovableClock(), queues=(waiting.queue,))
        assert (await process.claim_one(waiting.queue)).kind == waiting.kind
    # Closing the store releases the lock file, as the end of a process does.
    second = bots.gateway(ECHO)
    assert second.forge is not None
    async with second.running(workers=False):
        assert second.counters.value("gateway_janitor_total", step="recovered") == 1
        (job,) = await all_jobs(await second.forge.aready())
        assert job.status is JobStatus.PENDING
        await second.forge.drain()
    assert bots.api.texts() == ["in hand"]
