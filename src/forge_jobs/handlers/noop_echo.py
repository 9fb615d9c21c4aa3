"""``NoopEcho``: a handler that sleeps, fails or throttles on request. For demos and tests."""

from typing import Any, Final

import msgspec

from forge_jobs.core.outcome import Dead, Failed, JobOutcome, Throttled
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

NOOP_ECHO_KIND: Final = "noop_echo"
_MILLISECOND_US: Final = 1_000


class _EchoPayload(msgspec.Struct, frozen=True):
    sleep_ms: float = 100
    fail: bool = False
    throttle_ms: float | None = None


class NoopEcho:
    """Sleeps ``sleep_ms`` (default 100) and returns its payload.

    With ``fail`` the attempt fails. With ``throttle_ms`` a job younger than that is throttled for
    that long, so it happens once. ``fail`` takes precedence over ``throttle_ms``.

    >>> forge.register(NoopEcho(), queue="tests")
    >>> job = forge.enqueue("noop_echo", {"sleep_ms": 1})
    >>> report = forge.drain().run()
    >>> job.result(timeout=10)
    {'sleep_ms': 1}
    """

    kind: str = NOOP_ECHO_KIND

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock

    async def run(self, ctx: Context, payload: Any) -> JobOutcome | Any:
        """Run one attempt."""
        try:
            request = msgspec.convert({} if payload is None else payload, _EchoPayload)
        except msgspec.ValidationError as error:
            return Dead(f"{NOOP_ECHO_KIND}: the payload is wrong: {error}")
        await self._clock.sleep(max(0.0, request.sleep_ms) / 1_000)
        if request.fail:
            return Failed(f"{NOOP_ECHO_KIND}: the payload asks for a failure")
        if request.throttle_ms is not None and self._age_ms(ctx) < request.throttle_ms:
            return Throttled(request.throttle_ms / 1_000)
        return payload

    def _age_ms(self, ctx: Context) -> float:
        enqueued_us = int(ctx.job.enqueued_at.timestamp() * 1_000_000)
        return (self._clock.now() - enqueued_us) / _MILLISECOND_US
