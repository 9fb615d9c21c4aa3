"""Steps of the machine for worker processes: exchange, lease, time, reap and promote."""

from collections.abc import Sequence

from forge_jobs.core.decide import Finish
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess, ProcessStats

from . import compare, requests
from .machine import pick
from .requests import ALL, Outcome, Writes
from .state import DONE, RUNNING, SCHEDULED, SECOND, SUSPENDED, Job
from .stepping import SteppingMachine, check_claimed

LEASE_S = 15.0
CRASH_NOTE = "the worker process died"


class WorkerMachine(SteppingMachine):
    """The steps of worker processes."""

    def begin_work(self) -> None:
        """Register two processes."""
        self.register(None)
        self.register(None)

    def claim(self, who: int, wants: list[Want]) -> None:
        """A live process claims jobs; one is registered if none is left."""
        if not self.living():
            self.register(None)
        self.exchange(pick(self.living(), who), wants=wants)

    def finish(self, who: int, writes: Writes) -> None:
        """The owner of a running job finishes some of its claims."""
        if self.running():
            self.exchange_picks(pick(self.running(), who).owner or 0, writes, [])

    def mixed_exchange(self, who: int, writes: Writes, wants: list[Want]) -> None:
        """An exchange with any writes by any process: an owner, a dead or an unknown one."""
        owners = [job.owner or 0 for job in self.running()] or self.owners
        self.exchange_picks(
            pick([*self.owners, 999] if writes.stranger else owners, who), writes, wants
        )

    def repeat_a_finish(self, which: int) -> None:
        """The reply to a finish was lost, and its process sends it again."""
        if self.sent:
            owner, finish = pick(self.sent[::-1], which)
            self.exchange(owner, finish=[finish])

    def exchange_picks(self, owner: int, writes: Writes, wants: list[Want]) -> None:
        """Turn indexes into claims and exchange. Finishes are sorted by key: the contract does not
        say which of two throttles in one exchange closes the gate."""
        mine = [Claim(job.key, job.epoch) for job in self.model.owned(owner)]
        if writes.stranger:
            mine = [claim for _, claim in self.claims]
        mine = [Claim(claim.key, claim.epoch + writes.skew) for claim in mine]
        if not mine:
            self.exchange(owner, wants=wants)
            return
        finish = {pick(mine, index): outcome for index, outcome in writes.finish}
        self.exchange(
            owner,
            finish=sorted(
                (self.build(claim, outcome) for claim, outcome in finish.items()),
                key=lambda one: one.key,
            ),
            release=[pick(mine, index) for index in writes.release],
            started=[pick(mine, index) for index in writes.started],
            wants=wants,
        )

    def exchange(
        self,
        owner: int,
        *,
        finish: Sequence[Finish] = (),
        release: Sequence[Claim] = (),
        started: Sequence[Claim] = (),
        wants: Sequence[Want] = (),
    ) -> None:
        """One exchange, or two where the contract does not define the order of their effects."""
        if wants and self.bound_and_late():
            self.exchange(owner, finish=finish, release=release, started=started)
            self.promote()
            finish, release, started = (), (), ()
        self.number += 1
        request = Exchange(
            owner=owner,
            number=self.number,
            finish=finish,
            release=release,
            started=started,
            want=wants,
        )
        answer = self.ask(self.store.jobs.exchange(request))
        expected = self.model.exchange(request)
        assert (answer.now, answer.alive) == (self.model.now, expected.alive)
        assert list(answer.verdicts) == expected.verdicts
        compare.check_claims(self.model, answer.claims, list(expected.claims.values()))
        for claimed in answer.claims:
            check_claimed(claimed, self.model.jobs[claimed.key])
        assert set(answer.cancels) == expected.cancels
        if expected.due_by is not None:
            assert answer.next_due is not None
            assert answer.next_due <= expected.due_by
        self.check()
        self.sent += [(owner, one) for one in finish]
        self.claims += [(owner, Claim(one.key, one.epoch)) for one in answer.claims]

    def bound_and_late(self) -> bool:
        """Whether a job that a bucket binds has expired. A claim may cancel an expired row that it
        reads; that may admit another job of the bucket, so the claims are not determined."""
        jobs = self.model.jobs.values()
        return any(job.buckets and job.live and job.expired(self.model.now) for job in jobs)

    def living(self) -> list[int]:
        return [key for key in self.owners if self.model.alive(key)]

    def running(self) -> list[Job]:
        return [job for job in self.model.jobs.values() if job.status is RUNNING]

    def build(self, claim: Claim, outcome: Outcome) -> Finish:
        """The finish that a worker would send."""
        job = self.model.jobs.get(claim.key)
        outcome = outcome.under(self.theme)
        event = Event(outcome.event)
        last = job is None or job.attempts >= job.asked.max_attempts
        match event:
            case Event.DONE:
                status = DONE
            case Event.DIE:
                status = JobStatus.DEAD
            case Event.FAIL | Event.CRASH:
                status = JobStatus.DEAD if last or outcome.dead else JobStatus.FAILED
            case Event.SUSPEND:
                status = SUSPENDED
            case Event.RESTART:
                status = JobStatus.PENDING
            case _:
                status = JobStatus.DEAD if outcome.dead else SCHEDULED
        silent = event in (Event.DONE, Event.SNOOZE, Event.SUSPEND, Event.RESTART) or (
            event is Event.THROTTLE and status is SCHEDULED
        )
        extra = self.parting(claim, job, outcome, status)
        if extra is None and event in (Event.SUSPEND, Event.RESTART):
            event, status = Event.DIE, JobStatus.DEAD
        self.made += 1
        return Finish(
            claim.key,
            claim.epoch,
            event,
            status,
            "a" if job is None else job.queue,
            "plain" if job is None else job.kind,
            delay_s=outcome.delay_s if status in (SCHEDULED, JobStatus.FAILED) else 0.0,
            result=b"%d" % self.made if status is DONE else None,
            error=None if silent else f"{event} {self.made}",
            jobs=tuple(self.carried(asked) for asked in outcome.carries),
            enqueued_at=self.model.now if job is None else job.enqueued_at,
            steps=extra,
        )

    # Processes and time.

    def register(self, replaces: int | None) -> None:
        names = [process.host_id for process in self.model.processes.values()]
        former = pick(names, replaces) if names and replaces is not None else None
        host_id = f"host-{len(self.owners)}"
        process = NewProcess(
            host_id=host_id,
            label=host_id,
            queues=requests.QUEUES,
            pid=4711,
            hostname="box",
            lease_s=LEASE_S,
        )
        key = self.ask(self.store.processes.register(process, replaces=former))
        assert key not in self.owners
        self.owners.append(key)
        self.model.register(key, host_id, LEASE_S, former)
        self.check()

    def beat(self, who: int) -> None:
        key = pick(self.owners, who)
        answer = self.ask(self.store.processes.heartbeat(key, ProcessStats()))
        assert (answer.alive, answer.now) == (self.model.beat(key), self.model.now)
        self.check()

    def deregister(self, who: int) -> None:
        key = pick(self.owners, who)
        self.ask(self.store.processes.deregister(key))
        self.model.deregister(key)
        self.check()

    def advance_time(self, seconds: int, beat: bool) -> None:
        self.advance(seconds)
        if beat:
            self.beat_all_but(None)

    def beat_all_but(self, lost: int | None) -> None:
        for key in self.model.processes:
            if key != lost:
                alive = self.factory.runner.run(
                    self.store.processes.heartbeat(key, ProcessStats())
                ).alive
                assert alive == self.model.beat(key)

    def advance(self, seconds: float) -> None:
        """Advance the clock. Before a bound job expires, the other due jobs of its bucket are
        promoted: the contract does not say which is admitted when one call does both."""
        until = self.model.now + round(seconds * SECOND)
        late = {
            job.expires_at
            for job in self.model.jobs.values()
            if job.buckets and job.waiting and self.model.now < (job.expires_at or 0) <= until
        }
        for moment in sorted(late):
            self.set_clock(moment - SECOND // 4)
            self.promote()
            self.set_clock(moment)
            self.promote()
        self.set_clock(until)
        if self.bound_and_late():
            self.promote()

    def set_clock(self, moment: int) -> None:
        self.clock.advance(max(moment - self.model.now, 0) / SECOND)
        self.model.now = self.clock.now()

    def reap(self, remove_dead: bool) -> None:
        answer = self.ask(self.store.jobs.reap(crash_note=CRASH_NOTE, limit=ALL))
        went = self.model.reap(CRASH_NOTE)
        assert (answer.pending, answer.dead, answer.cancelled, answer.more) == (
            went[JobStatus.PENDING],
            went[JobStatus.DEAD],
            went[JobStatus.CANCELLED],
            False,
        )
        self.check()
        if remove_dead:
            assert self.ask(self.store.processes.remove_dead()) == self.model.remove_dead()
            self.check()

    def lose_a_process(self, who: int) -> None:
        """All processes but one send a heartbeat; the lease of that one expires."""
        lost = pick(self.living() or self.owners, who)
        self.advance(LEASE_S + 1)
        self.beat_all_but(lost)
        self.reap(remove_dead=True)

    def promote(self) -> None:
        answer = self.ask(self.store.jobs.promote(limit=ALL))
        seen = (answer.promoted, answer.expired, answer.next_due)
        assert seen == self.model.promote()
        assert not answer.more
        self.check()
