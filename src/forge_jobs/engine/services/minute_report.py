"""One log line a minute about the jobs of this process, so that a healthy worker shows life."""

import logging
from collections.abc import Callable, Sequence

from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.run_log import RunLog
from forge_jobs.kit.log import IN_MESSAGE
from forge_jobs.kit.service import Next, RunsOn

_LOG = logging.getLogger("forge_jobs.worker")
_EVERY_S = 60.0
# While there is nothing to do, one line in ten minutes.
_IDLE_TICKS = 10


class MinuteReport:
    """Logs what ended since the last line. An idle minute has no line, ten of them have one."""

    name = "minute-report"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        in_flight: InFlightJobs,
        run_log: RunLog,
        queues: Sequence[str],
        *,
        mono: Callable[[], float],
    ) -> None:
        self._in_flight = in_flight
        self._run_log = run_log
        self._queues = ", ".join(queues)
        self._mono = mono
        self._before = (0, 0, 0, 0)
        self._since = mono()
        self._idle_ticks = 0

    async def tick(self) -> Next:
        """Log a line if one is due."""
        now = self._mono()
        if now - self._since < _EVERY_S / 2:
            # The first tick comes at the start.
            return Next.exactly(_EVERY_S)
        log, running = self._run_log, self._in_flight.running
        totals = (self._in_flight.written, log.failed, log.dead, log.put_off)
        written, failed, dead, put_off = (
            after - before for after, before in zip(totals, self._before, strict=True)
        )
        span_s, self._since, self._before = now - self._since, now, totals
        done = max(0, written - failed - dead - put_off)
        if any((done, failed, dead, put_off, running)):
            self._idle_ticks = 0
            fields = {
                "done": done, "failed": failed, "dead": dead, "put_off": put_off,
                "running": running, "span_s": round(span_s),
            }  # fmt: skip
            _LOG.info(
                "%d s: %s jobs done, %s failed, %s dead, %s put off; %d running",
                *(round(span_s), f"{done:,}", f"{failed:,}", f"{dead:,}", f"{put_off:,}", running),
                extra={**fields, IN_MESSAGE: frozenset(fields)},
            )
        else:
            self._idle_ticks += 1
            if self._idle_ticks % _IDLE_TICKS == 0:
                _LOG.info(
                    "no job in the last %d minutes; waiting for jobs in %s",
                    self._idle_ticks * _EVERY_S / 60,
                    self._queues,
                )
        return Next.exactly(_EVERY_S)
