"""Steps of the machine for worker processes: exchanges, leases, time, reaper and promote."""

from collections.abc import Sequence

from forge_jobs.core.decide import Finish
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess, ProcessStats

from . import compare, requests
from .machine import StoreMachine, pick
from .requests import ALL, Ends, Outcome
from .state import DONE, RUNNING, SCHEDULED, SECOND, Job

LEASE_S = 15.0
CRASH_NOTE = "the worker process died"


class WorkerMachine(StoreMachine):
    """What worker processes do."""

    def begin_work(self) -> None:
        """Two processes are there from the start."""
        self.register(None)
        self.register(None)

    def claim(self, who: int, wants: list[Want]) -> None:
        """A living process asks for jobs; one registers where none is left."""
        if not self.living():
            self.register(None)
        self.exchange(pick(self.living(), who), wants=wants)

    def finish(self, who: int, said: Ends) -> None:
        """The owner of a running job ends some of its claims."""
        if self.running():
            self.tell(pick(self.running(), who).owner or 0, said, [])

    def mixed_round(self, who: int, said: Ends, wants: list[Want]) -> None:
        """Anybody says anything: an owner, a dead process, one that nobody knows."""
        owners = [job.owner or 0 for job in self.running()] or self.owners
        self.tell(pick([*self.owners, 999] if said.stranger else owners, who), said, wants)

    def repeat_a_finish(self, which: int) -> None:
        """The answer to a finish was lost, and its process sends it again."""
        if self.sent:
            owner, end = pick(self.sent[::-1], which)
            self.exchange(owner, finish=[end])

    def tell(self, owner: int, said: Ends, wants: list[Want]) -> None:
        """Turn picks into claims and exchange. Finishes go in the order of keys: which of two
        throttles in one round closes the gate is left open."""
        mine = [Claim(job.key, job.epoch) for job in self.model.owned(owner)]
        if said.stranger:
            mine = [claim for _, claim in self.claims]
        mine = [Claim(claim.key, claim.epoch + said.skew) for claim in mine]
        if not mine:
            self.exchange(owner, wants=wants)
            return
        finish = {pick(mine, factory): outcome for factory, outcome in said.finish}
        self.exchange(
            owner,
            finish=sorted(
                (self.build(claim, outcome) for claim, outcome in finish.items()),
                key=lambda end: end.key,
            ),
            release=[pick(mine, factory) for factory in said.release],
            started=[pick(mine, factory) for factory in said.started],
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
        """One round, or two where the contract leaves open what happens between them."""
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
        assert set(answer.cancels) == expected.cancels
        if expected.due_by is not None:
            assert answer.next_due is not None
            assert answer.next_due <= expected.due_by
        self.check()
        self.sent += [(owner, end) for end in finish]
        self.claims += [(owner, Claim(one.key, one.epoch)) for one in answer.claims]

    def bound_and_late(self) -> bool:
        """A claim may cancel an expired row that it meets. Where that row has room in a bucket,
        somebody else may go on, so that the claims are not determined."""
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
            case _:
                status = JobStatus.DEAD if outcome.dead else SCHEDULED
        silent = event in (Event.DONE, Event.SNOOZE) or (
            event is Event.THROTTLE and status is SCHEDULED
        )
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

    def leave(self, who: int) -> None:
        key = pick(self.owners, who)
        self.ask(self.store.processes.deregister(key))
        self.model.leave(key)
        self.check()

    def pass_time(self, seconds: int, beat: bool) -> None:
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
        """Let time pass. Where a bound job expires, the others of its bucket come due before it:
        who goes on is left open when one call does both."""
        until = self.model.now + round(seconds * SECOND)
        late = {
            job.expires_at
            for job in self.model.jobs.values()
            if job.buckets and job.waiting and self.model.now < (job.expires_at or 0) <= until
        }
        for moment in sorted(late):
            self.move_clock(moment - SECOND // 4)
            self.promote()
            self.move_clock(moment)
            self.promote()
        self.move_clock(until)
        if self.bound_and_late():
            self.promote()

    def move_clock(self, moment: int) -> None:
        self.clock.advance(max(moment - self.model.now, 0) / SECOND)
        self.model.now = self.clock.now()

    def reap(self, bury: bool) -> None:
        answer = self.ask(self.store.jobs.reap(crash_note=CRASH_NOTE, limit=ALL))
        went = self.model.reap(CRASH_NOTE)
        assert (answer.pending, answer.dead, answer.cancelled, answer.more) == (
            went[JobStatus.PENDING],
            went[JobStatus.DEAD],
            went[JobStatus.CANCELLED],
            False,
        )
        self.check()
        if bury:
            assert self.ask(self.store.processes.remove_dead()) == self.model.bury()
            self.check()

    def lose_a_process(self, who: int) -> None:
        """All but one process beat; the lease of that one runs out."""
        lost = pick(self.living() or self.owners, who)
        self.advance(LEASE_S + 1)
        self.beat_all_but(lost)
        self.reap(bury=True)

    def promote(self) -> None:
        answer = self.ask(self.store.jobs.promote(limit=ALL))
        seen = (answer.promoted, answer.expired, answer.next_due)
        assert seen == self.model.promote()
        assert not answer.more
        self.check()
