"""An independent model of the store contract: one job store as small plain Python.

The rules are written from the docstrings of ``forge_jobs.store`` and the transition table of the
documentation. Nothing here imports ``core.decide``, ``core.throttle`` or a backend to decide what
is right; ``Finish`` and the other imported names are data types. Every query is a scan over
all jobs, because a test has few of them.

A store may choose any keys and ids, so the model takes them over: ``fresh`` holds the new records
of the store by the marker in their payload, and ``insert`` reads the key from there.
"""

import json
from collections import Counter
from collections.abc import Sequence

from forge_jobs.core.job import Claim, JobRecord, NewJob, Successor, UniqueWhile
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Retention

from .histories import NEVER, Histories
from .state import (
    CANCELLED,
    DEAD,
    DONE,
    ENDED,
    FAILED,
    HELD,
    PENDING,
    RUNNING,
    SCHEDULED,
    SOME_TEXT,
    SUSPENDED,
    Gate,
    Holder,
    Job,
    Process,
    Queue,
    later,
)

ERRORS_KEPT = 32
_DUE_LATER = (SCHEDULED, FAILED, SUSPENDED)


def marker(payload: bytes) -> str:
    """What identifies a new job: its number, or the id of the job that died."""
    decoded = json.loads(payload)
    return decoded["job"]["id"] if "job" in decoded else str(decoded["n"])


class Model(Histories):
    """What the store must contain. The exchange is in ``exchanges.ExchangeModel``."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[int, Process] = {}
        self.queues: dict[str, Queue] = {}
        self.gates: dict[str, Gate] = {}
        self.keys: dict[tuple[str, str], Holder] = {}
        self.failures: Counter[str] = Counter()
        self.totals: Counter[tuple[str, str, str]] = Counter()
        self.fresh: dict[str, JobRecord] = {}

    # Inserting and finishing.

    def insert(self, asked: NewJob) -> tuple[Job, bool]:
        """Store a job; or return the job that holds its dedupe key, and True."""
        known = self.holder(asked)
        if known is not None:
            return known, True
        stored = self.fresh.pop(marker(asked.payload))
        now = self.now
        run_at = later(now, asked.delay_s)
        expires_at = None if asked.expires_s is None else later(now, asked.expires_s)
        job = Job(stored.key, stored.id, asked, now, run_at, expires_at, SCHEDULED)
        if run_at <= now:
            self.admit_or_hold(job)
            if asked.hold:
                job.status, job.limit_bucket = HELD, job.buckets[-1]
        self.jobs[job.key] = job
        self.hold_key(job)
        self.count(job, "enqueued")
        return job, False

    def count(self, job: Job, what: str) -> None:
        """One more in the totals of the metrics."""
        self.totals[job.queue, job.kind, what] += 1

    def end(self, job: Job, status: JobStatus) -> None:
        """A job becomes done, dead or cancelled."""
        job.status, job.limit_bucket, job.owner, job.stop_at = status, None, None, None
        job.wait = None
        job.finished_at = self.now
        self.count(job, str(status))
        mine = self._own_key(job)
        if mine is not None and job.asked.dedupe_for_s:
            mine.until = later(self.now, job.asked.dedupe_for_s)
        elif mine is not None:
            self.free_key(job)
        if status is DEAD and job.asked.on_dead is not None:
            self.insert(self._dead_letter(job, job.asked.on_dead))
        self.admit(*job.buckets)

    def delay(self, job: Job, status: JobStatus, delay_s: float) -> None:
        """Schedule a job for a later time; its room in its buckets becomes free."""
        job.status, job.owner, job.stop_at = status, None, None
        job.run_at = later(self.now, delay_s)
        self.admit(*job.buckets)

    def add_error(self, job: Job, message: str) -> None:
        """Add an error to the bounded history; a failure, unless somebody cancelled the run."""
        if job.stop_at is None:
            self.failures[job.asked.kind] += 1
        job.last_error = message
        job.errors = [*job.errors, (job.attempts, message)][-ERRORS_KEPT:]

    def _dead_letter(self, job: Job, task: Successor) -> NewJob:
        """The on_dead job: the settings of its task, the tags of the job that died."""
        told = {
            "id": job.id,
            "kind": job.kind,
            "queue": job.queue,
            "attempts": job.attempts,
            "error": job.last_error,
            "payload": json.loads(job.asked.payload),
            "enqueued_at": job.enqueued_at,
            "died_at": self.now,
        }
        return NewJob(
            kind=task.kind,
            queue=task.queue,
            payload=json.dumps({"job": told}).encode(),
            priority=task.priority,
            max_attempts=task.max_attempts,
            tags=tuple(dict.fromkeys((*task.tags, *job.asked.tags))),
            lane=task.lane,
            order=task.order,
            on_dead=task.on_dead,
        )

    # Dedupe keys.

    def holder(self, asked: NewJob) -> Job | None:
        """The job that holds the dedupe key of this request."""
        if asked.dedupe_key is None:
            return None
        known = self.keys.get((asked.kind, asked.dedupe_key))
        if known is None or (known.until is not None and known.until <= self.now):
            return None
        return self.jobs[known.job]

    def hold_key(self, job: Job) -> None:
        if job.asked.dedupe_key is not None:
            self.keys[job.kind, job.asked.dedupe_key] = Holder(job.key)

    def free_key(self, job: Job) -> None:
        if self._own_key(job) is not None:
            del self.keys[job.kind, job.asked.dedupe_key or ""]

    def _own_key(self, job: Job) -> Holder | None:
        known = self.keys.get((job.kind, job.asked.dedupe_key or ""))
        return known if known is not None and known.job == job.key else None

    def mark_started(self, job: Job) -> None:
        if not job.started:
            job.started = True
            if job.asked.unique_while is UniqueWhile.WAITING:
                self.free_key(job)

    # Processes.

    def alive(self, owner: int) -> bool:
        known = self.processes.get(owner)
        return known is not None and known.alive(self.now)

    def register(self, key: int, host_id: str, lease_s: float, replaces: str | None) -> None:
        for known in self.processes.values():
            if known.host_id in (host_id, replaces):
                known.dead = True
        self.processes[key] = Process(key, host_id, self.now, lease_s)

    def beat(self, key: int) -> bool:
        known = self.processes.get(key)
        if known is None or known.dead:
            return False
        known.beat_at = self.now
        return True

    def deregister(self, key: int) -> None:
        for job in self.owned(key):
            self.release(job)
        self.processes.pop(key, None)

    def remove_dead(self) -> int:
        gone = [key for key, one in self.processes.items() if one.dead and not self.owned(key)]
        for key in gone:
            del self.processes[key]
        return len(gone)

    def owned(self, owner: int) -> list[Job]:
        rows = [job for job in self.jobs.values() if job.status is RUNNING and job.owner == owner]
        return sorted(rows, key=lambda job: job.key)

    def mine(self, owner: int, claim: Claim) -> Job | None:
        """The job of a claim that is still valid: owner and epoch match its row."""
        job = self.jobs.get(claim.key)
        good = job is not None and job.status is RUNNING
        return job if good and (job.owner, job.epoch) == (owner, claim.epoch) else None

    def release(self, job: Job) -> None:
        """Release a claim: the attempt is not spent and the epoch is raised."""
        job.epoch += 1
        self.mark_found(job)
        if job.stop_at is not None:
            job.last_error = job.stop_reason
            self.end(job, CANCELLED)
            return
        job.attempts -= 1
        job.status, job.owner = PENDING, None
        self.count(job, "released")

    def reap(self, crash_note: str) -> Counter[JobStatus]:
        """Take running jobs from owners that are not alive."""
        for process in self.processes.values():
            process.dead = not process.alive(self.now)
        running = sorted(key for key, job in self.jobs.items() if job.status is RUNNING)
        lost = [self.jobs[key] for key in running if not self.alive(self.jobs[key].owner or 0)]
        return Counter(self._reap(job, crash_note) for job in lost)

    def _reap(self, job: Job, crash_note: str) -> JobStatus:
        job.epoch += 1
        self.mark_found(job)
        if job.started:
            job.crashes += 1
            self.add_error(job, crash_note)
        else:
            job.attempts -= 1
        if job.stop_at is not None:
            job.last_error = job.stop_reason
            self.end(job, CANCELLED)
        elif job.attempts >= job.asked.max_attempts:
            self.end(job, DEAD)
        else:
            job.status, job.owner = PENDING, None
            self.count(job, "retried" if job.started else "released")
        return job.status

    # Time.

    def expire(self, job: Job) -> None:
        job.last_error = SOME_TEXT
        self.end(job, CANCELLED)

    def promote_queue(self, queue: str) -> int:
        """Promote the due jobs of a queue together; expired ones are cancelled."""
        due = [
            job
            for job in self.jobs.values()
            if job.queue == queue and job.status in _DUE_LATER and job.run_at <= self.now
        ]
        for job in due:
            if job.expired(self.now):
                self.expire(job)
            elif job.status is SUSPENDED:
                self.wake(job)
        self.admit_or_hold_all(job for job in due if job.live)
        return sum(job.live for job in due)

    def promote(self) -> tuple[int, int, int | None]:
        """Promote all queues: how many jobs, how many expired, and the next due time or expiry."""
        late = [job for job in self.jobs.values() if job.waiting and job.expired(self.now)]
        for job in sorted(late, key=lambda job: job.key):
            self.expire(job)
        promoted = sum(self.promote_queue(queue) for queue in sorted(self._queue_names()))
        times = [job.run_at for job in self.jobs.values() if job.status in _DUE_LATER] + [
            job.expires_at for job in self.jobs.values() if job.waiting and job.expires_at
        ]
        times = [time for time in times if time != NEVER]
        return promoted, len(late), min(times, default=None)

    def _queue_names(self) -> set[str]:
        return {job.queue for job in self.jobs.values()}

    # Actions of operators.

    def unhold(self, limit_bucket: str, limit: int) -> int:
        admitted = self.held_in(limit_bucket)[:limit]
        for job in admitted:
            job.status, job.limit_bucket = PENDING, None
        return len(admitted)

    def act(self, verb: str, chosen: Sequence[Job], reason: str = "") -> Counter[str]:
        """cancel, retry, run_now or delete these jobs, in this order; those that are due after it
        are promoted together."""
        done: Counter[str] = Counter()
        due: list[Job] = []
        for job in chosen:
            effect = self._act(verb, job, reason)
            done[effect] += 1
            if effect == "changed" and verb in ("retry", "run_now"):
                due.append(job)
        self.admit_or_hold_all(due)
        return done

    def _act(self, verb: str, job: Job, reason: str) -> str:
        if verb in ("cancel", "delete") and job.status is RUNNING:
            if job.stop_at is None:
                job.stop_at = self.now
                job.stop_reason = reason if verb == "cancel" else SOME_TEXT
            return "requested"
        match verb:
            case "cancel" if job.live:
                job.last_error = reason
                self.end(job, CANCELLED)
            case "retry" if job.status in (FAILED, DEAD, CANCELLED) and not self.key_blocked(job):
                self._retry(job)
            case "run_now" if job.status in _DUE_LATER:
                job.run_at, job.wait = self.now, None
            case "delete":
                self.remove(job)
            case _:
                return "skipped"
        return "changed"

    def retry_from(self, job: Job, step: str) -> bool:
        """Forget a step and all that began at the same time or later, then retry the job."""
        if job.status not in (FAILED, DEAD, CANCELLED):
            return False
        began_at = job.steps[step].began_at
        job.steps = {name: one for name, one in job.steps.items() if one.began_at < began_at}
        self.act("retry", [job])
        return True

    def key_blocked(self, job: Job) -> bool:
        other = self.holder(job.asked)
        return other is not None and other is not job and other.live

    def _retry(self, job: Job) -> None:
        job.run_at, job.finished_at = self.now, None
        job.attempts = job.crashes = job.throttles = job.failed_runs = 0
        job.throttled_since = job.missing_since = None
        if job.expired(self.now):
            job.expires_at = None
        job.status = SCHEDULED
        self.hold_key(job)

    def remove(self, job: Job) -> None:
        self.free_key(job)
        del self.jobs[job.key]
        if job.status not in ENDED:
            self.admit(*job.buckets)

    def purge(self, keep: Retention) -> int:
        """Remove ended jobs past their retention, unless they still hold their key."""
        default = {DONE: keep.done_s, DEAD: keep.dead_s, CANCELLED: keep.cancelled_s}
        old: list[Job] = []
        for job in self.jobs.values():
            if job.status not in ENDED or keep.queue not in (None, job.queue):
                continue
            settings = self.queues.get(job.queue) if keep.queue is None else None
            kept_s = (default if settings is None else settings.retain_s)[job.status]
            past = kept_s is not None and later(job.finished_at or 0, kept_s) <= self.now
            if past and self.holder(job.asked) is not job:
                old.append(job)
        for job in old:
            self.remove(job)
        return len(old)
