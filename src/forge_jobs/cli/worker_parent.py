"""The parent of worker processes: starts, watches, restarts and stops them.

It uses the standard library only and never imports the user's application, so no application can
crash it, and it stays small. Each worker process holds one end of a socket pair (``--control-fd``)
and exchanges lines with the parent:

* worker to parent, JSON: ``{"started": HOST_ID}`` once it serves, ``{"heartbeat": HOST_ID}`` from
  its I/O thread several times per lease, ``{"refused": WHY}`` if it can never start (such as a
  wrong application path);
* parent to worker: ``drain``. End of file means drain as well: it is how workers notice the death
  of their parent.

A worker without a heartbeat for a lease cannot run its I/O thread (the interpreter lock is held)
and is killed. The successor of a dead worker gets its host id, so that its jobs are free at once.
"""

import json
import logging
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from forge_jobs.kit.children.process import ChildExit
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from .parent_signals import TERMINAL_SIGNALS, SignalCounts, count_signals, reap_orphans

_LOG = logging.getLogger("forge_jobs.parent")

DRAINED: Final = 0
FAILED: Final = 1
CHILD_MODULE: Final = "forge_jobs.cli.worker_child"

_MIN_RESTART_DELAY_S: Final = 0.1
_MAX_RESTART_DELAY_S: Final = 30.0
_HEALTHY_S: Final = 60.0
_MAX_FAILED_STARTS: Final = 5
_SLOW_START_LOG_S: Final = 30.0
_POLL_S: Final = 0.5
_AFTER_GRACE_S: Final = 1.8
_MAX_LINE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _SupervisedWorker:
    """One of the numbered workers: its current process and its state across restarts."""

    number: int
    process: "subprocess.Popen[bytes] | None" = None
    control: socket.socket | None = None
    unread: bytes = b""
    host_id: str | None = None
    predecessor: str | None = None
    refusal: str | None = None
    started_at: float = 0.0
    last_message_at: float = 0.0
    slow_start_logged_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    draining: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" (pid {self.process.pid})" if self.process else "")


@dataclass(slots=True, kw_only=True)
class WorkerParent:
    """Supervises the worker processes until a signal stops it; ``run`` returns the exit code."""

    child_args: Sequence[str]
    processes: int
    grace_s: float
    lease_s: float
    clock: Clock
    child_module: str
    signals: SignalCounts = field(default_factory=SignalCounts)
    _workers: list[_SupervisedWorker] = field(default_factory=list[_SupervisedWorker])
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _wake: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    _stop_by: float | None = None
    _exit_code: int = DRAINED
    _any_started: bool = False
    _to_restart: list[_SupervisedWorker] = field(default_factory=list[_SupervisedWorker])
    _last_step_at: float = 0.0

    def run(self) -> int:
        """Start the workers and supervise them until the last one has exited."""
        self._workers = [_SupervisedWorker(number) for number in range(1, self.processes + 1)]
        for end in self._wake:
            end.setblocking(False)
        self._selector.register(self._wake[0], selectors.EVENT_READ)
        with count_signals(self.signals, self._wake[1]):
            try:
                while self._step():
                    self._read_messages(self._wait_s())
            finally:
                self._kill_all()
                self._selector.close()
                for end in self._wake:
                    end.close()
        return self._exit_code

    def _step(self) -> bool:
        """One step of the supervision loop; False once stopping and all workers have exited."""
        now = self.clock.mono()
        self._reset_timeouts_after_suspend(now)
        self._reap(now)
        self._apply_signals(now)
        if self._stop_by is None:
            self._start_due(now)
            self._continue_rolling_restart(now)
        self._kill_unresponsive(now)
        return self._stop_by is None or any(worker.process for worker in self._workers)

    def _reset_timeouts_after_suspend(self, now: float) -> None:
        # Ctrl-Z and a suspended machine stop the parent too: missing heartbeats prove nothing then.
        if now - self._last_step_at > 4 * _POLL_S:
            for worker in self._workers:
                worker.last_message_at = now
        self._last_step_at = now

    def _wait_s(self) -> float:
        now = self.clock.mono()
        times = [w.start_at for w in self._workers if w.process is None and self._stop_by is None]
        if self._stop_by is not None:
            times.append(self._stop_by)
        return max(0.0, min([_POLL_S, *(at - now for at in times)]))

    # ----------------------------------------------------------------------- starting and reaping

    def _start_due(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is None and worker.start_at <= now:
                self._start(worker, now)

    def _start(self, worker: _SupervisedWorker, now: float) -> None:
        parent_end, child_end = socket.socketpair()
        command = [sys.executable, "-m", self.child_module, *self.child_args]
        command += ["--control-fd", str(child_end.fileno()), "--number", str(worker.number)]
        if worker.predecessor:
            command += ["--replaces", worker.predecessor]
        # Blocked until the worker has installed its handlers: an early Ctrl-C must not kill it.
        signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
        try:
            worker.process = subprocess.Popen(command, pass_fds=[child_end.fileno()])
        except OSError as error:
            parent_end.close()
            self._start_failed(worker, now, f"cannot be started: {error}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL_SIGNALS)
            child_end.close()
        parent_end.setblocking(False)
        worker.control, worker.unread, worker.host_id, worker.refusal = parent_end, b"", None, None
        worker.started_at = worker.last_message_at = worker.slow_start_logged_at = now
        self._selector.register(parent_end, selectors.EVENT_READ, worker)

    def _reap(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is not None:
                self._read(worker, now)
                self._exited(worker, worker.process.returncode, now)
        reap_orphans({worker.process.pid for worker in self._workers if worker.process})

    def _exited(self, worker: _SupervisedWorker, status: int, now: float) -> None:
        name = worker.name
        self._close_control(worker)
        worker.process = None
        worker.predecessor = worker.host_id or worker.predecessor
        if self._stop_by is not None:
            return
        if worker.refusal is not None:
            self._refused(worker, now)
        elif worker.host_id is None:
            self._start_failed(worker, now, f"ended before it was up: {ChildExit(status)}")
        elif worker.draining or status == 0:
            # It has released its jobs and deregistered from the store.
            worker.draining, worker.predecessor, worker.start_at = False, None, now
        else:
            worker.failures = 0 if now - worker.started_at >= _HEALTHY_S else worker.failures
            delay_s = self._delay_start(worker, now)
            _LOG.warning("%s died: %s; next start in %.1f s", name, ChildExit(status), delay_s)

    def _refused(self, worker: _SupervisedWorker, now: float) -> None:
        if any(other.host_id and other.process for other in self._workers):
            delay_s = self._delay_start(worker, now)
            _LOG.error("%s; next try in %.1f s", worker.refusal, delay_s)
        else:
            _LOG.error("%s", worker.refusal)
            self._fail(now)

    def _start_failed(self, worker: _SupervisedWorker, now: float, why: str) -> None:
        delay_s = self._delay_start(worker, now)
        if not self._any_started and worker.failures >= _MAX_FAILED_STARTS:
            _LOG.error("worker %d %s, %d times in a row", worker.number, why, worker.failures)
            self._fail(now)
        else:
            _LOG.warning("worker %d %s; next start in %.1f s", worker.number, why, delay_s)

    def _delay_start(self, worker: _SupervisedWorker, now: float) -> float:
        worker.failures += 1
        delay_s = _MIN_RESTART_DELAY_S * 2 ** min(worker.failures - 1, 10)
        delay_s = min(delay_s, _MAX_RESTART_DELAY_S)
        worker.start_at = now + delay_s
        return delay_s

    def _fail(self, now: float) -> None:
        self._exit_code = FAILED
        self._drain(now)

    # ----------------------------------------------------------------------- stops and restarts

    def _apply_signals(self, now: float) -> None:
        if self.signals.stops and self._stop_by is None:
            _LOG.info("stopping: running jobs get %g s to end", self.grace_s)
            self._drain(now)
        overdue = self._stop_by is not None and now >= self._stop_by
        if self.signals.stops > 1 or overdue:
            running = [worker.name for worker in self._workers if worker.process]
            if running:
                self._exit_code = FAILED
                _LOG.warning("killing %s", ", ".join(running))
            self._kill_all()
        if self.signals.restarts and self._stop_by is None:
            self.signals.restarts = 0
            _LOG.info("restarting the workers one by one")
            self._to_restart = list(self._workers)

    def _drain(self, now: float) -> None:
        self._stop_by = now + self.grace_s + _AFTER_GRACE_S
        for worker in self._workers:
            self._send(worker, b"drain\n")
            if worker.process is not None and worker.host_id is None:
                # Still importing the application: it holds no job and reads no command yet.
                worker.process.terminate()

    def _continue_rolling_restart(self, now: float) -> None:
        """Drain the next worker of a rolling restart, once all workers are running."""
        all_running = all(w.process and w.host_id and not w.draining for w in self._workers)
        if not self._to_restart or not all_running:
            return
        worker = self._to_restart.pop(0)
        worker.draining = True
        self._send(worker, b"drain\n")

    def _send(self, worker: _SupervisedWorker, command: bytes) -> None:
        if worker.control is not None:
            with suppress(OSError):
                worker.control.send(command)

    def _kill_unresponsive(self, now: float) -> None:
        for worker in self._workers:
            if worker.process is None:
                continue
            silent_s = now - worker.last_message_at
            if worker.host_id is None:
                if now - worker.slow_start_logged_at > _SLOW_START_LOG_S:
                    worker.slow_start_logged_at = now
                    _LOG.warning(
                        "%s is still starting after %.0f s", worker.name, now - worker.started_at
                    )
            elif silent_s > self.lease_s:
                _LOG.error("%s sent no heartbeat for %.1f s: killing it", worker.name, silent_s)
                worker.last_message_at = now
                worker.process.kill()

    def _kill_all(self) -> None:
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()
                worker.process.wait()
                worker.process = None
            self._close_control(worker)

    # ------------------------------------------------------------------------ messages of workers

    def _read_messages(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                with suppress(BlockingIOError):
                    self._wake[0].recv(4096)
            else:
                self._read(key.data, self.clock.mono())

    def _read(self, worker: _SupervisedWorker, now: float) -> None:
        while worker.control is not None:
            try:
                data = worker.control.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_control(worker)
                return
            *lines, worker.unread = (worker.unread + data).split(b"\n")
            worker.unread = worker.unread[:_MAX_LINE_BYTES]
            for line in lines:
                self._handle_message(worker, line, now)

    def _handle_message(self, worker: _SupervisedWorker, line: bytes, now: float) -> None:
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            _LOG.warning("%s sent a line that is not JSON", worker.name)
            return
        worker.last_message_at = now
        if "started" in message:
            worker.host_id, worker.predecessor = str(message["started"]), None
            self._any_started = True
            _LOG.info("%s is up", worker.name)
            if self._stop_by is not None:
                self._send(worker, b"drain\n")
        elif "heartbeat" in message and worker.host_id is not None:
            worker.host_id = str(message["heartbeat"])
        elif "refused" in message:
            worker.refusal = str(message["refused"])

    def _close_control(self, worker: _SupervisedWorker) -> None:
        if worker.control is not None:
            self._selector.unregister(worker.control)
            worker.control.close()
            worker.control = None


def run_parent(
    child_args: Sequence[str],
    *,
    processes: int = 1,
    grace_s: float = 20.0,
    lease_s: float = 15.0,
    clock: Clock = SYSTEM_CLOCK,
    child_module: str = CHILD_MODULE,
) -> int:
    """Run ``processes`` workers with these arguments until a signal stops them.

    Returns the exit code: 0 drained, 1 a worker could not start or was killed. ``child_args``
    begins with the application's path. Call it on the main thread.
    """
    parent = WorkerParent(
        child_args=child_args,
        processes=processes,
        grace_s=grace_s,
        lease_s=lease_s,
        clock=clock,
        child_module=child_module,
    )
    return parent.run()
