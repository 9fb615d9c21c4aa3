"""Steps of the machine for operators: bulk actions, queues, limits, retention, queries."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from forge_jobs.core.job import Claim
from forge_jobs.core.selection import Acted, BulkAction, Filter, Selection
from forge_jobs.store.jobs import Retention, Want
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.queues import QueueChange

from . import compare, requests
from .machine import pick
from .requests import ALL, Asked, Outcome, Step
from .state import (
    CANCELLED,
    DEAD,
    DONE,
    FAILED,
    HELD,
    PENDING,
    RUNNING,
    SCHEDULED,
    SUSPENDED,
    Job,
)
from .workers import WorkerMachine

_APT = {
    "cancel": (PENDING, HELD, SUSPENDED, RUNNING),
    "retry": (FAILED, DEAD, CANCELLED),
    "run_now": (SCHEDULED, FAILED, SUSPENDED),
    "delete": (HELD, FAILED, SUSPENDED, DONE, DEAD),
}
REASON = "not wanted any more"


class WholeMachine(WorkerMachine):
    """Every step.

    There is one rule that draws a weighted step. With a rule for each step Hypothesis leaves some
    rules out of each example, and most examples then lack the enqueue, the claim or the finish.
    """

    @initialize(theme=st.sampled_from(tuple(requests.THEMES)))
    def begin(self, theme: str) -> None:
        self.step(Step("choose", {"theme": theme}))

    def choose(self, theme: str) -> None:
        self.theme = theme

    @rule(step=requests.steps())
    def step(self, step: Step) -> None:
        self.factory.steps.append(step)
        if self.bound_and_late():
            self.promote()
        getattr(self, step.name)(**step.given)

    def act(self, verb: str, selection: Selection, limit: int, after: str | None) -> Acted:
        action = BulkAction(verb)
        return self.ask(
            self.store.jobs.act(action, selection, reason=REASON, limit=limit, after=after)
        )

    def compare_acted(self, verb: str, acted: Acted, chosen: list[Job]) -> None:
        done = self.model.act(verb, chosen, REASON)
        seen = {name: getattr(acted, name) for name in ("changed", "requested", "skipped")}
        assert +Counter(seen) == +done
        self.check()

    def act_on_ids(self, verb: str, picks: list[int], apt: bool) -> None:
        """Jobs in any state; with ``apt`` preferably jobs that the verb applies to."""
        jobs = list(self.model.jobs.values())
        if apt:
            jobs = [job for job in jobs if job.status in _APT[verb]] or jobs
        if not jobs:
            return
        chosen = list({job.key: job for job in (pick(jobs, index) for index in picks)}.values())
        self.admit_before(verb)
        selection = Selection(ids=(*(job.id for job in chosen), "no id of ours"))
        acted = self.act(verb, selection, 1, None)
        assert (acted.missing, acted.next) == (1, None)
        self.compare_acted(verb, acted, chosen)

    def stop_a_running_job(self, which: int, end: Outcome | None) -> None:
        """An operator cancels a running job; its owner then finishes or releases the claim."""
        if not self.running():
            return
        job = pick(self.running(), which)
        claim, owner = Claim(job.key, job.epoch), job.owner or 0
        self.compare_acted("cancel", self.act("cancel", Selection(ids=(job.id,)), 1, None), [job])
        if end is None:
            self.exchange(owner, release=[claim])
        else:
            self.exchange(owner, finish=[self.build(claim, end)])

    def act_on_filter(self, verb: str, wanted: Filter, limit: int) -> None:
        """A filter is walked in steps of ``limit`` jobs, newest first."""
        self.admit_before(verb)
        met: set[int] = set()
        cursor: str | None = None
        while True:
            rest = [
                job
                for key, job in sorted(self.model.jobs.items(), reverse=True)
                if (not met or key < min(met)) and matches(job, wanted)
            ]
            chosen = rest[:limit]
            acted = self.act(verb, Selection(filter=wanted), limit, cursor)
            assert (acted.missing, acted.next is not None) == (0, len(rest) > limit)
            self.compare_acted(verb, acted, chosen)
            met |= {job.key for job in chosen}
            cursor = acted.next
            if cursor is None:
                return

    def admit_before(self, verb: str) -> None:
        """Held jobs that have room may go on with those that are brought back: admit them first."""
        if verb in ("retry", "run_now"):
            self.admit()

    def purge(self, keep: Retention) -> None:
        removed = self.ask(self.store.jobs.purge(keep, limit=ALL))
        assert removed == self.model.purge(keep)
        self.check()

    def pause(self, queue: str, paused: bool) -> None:
        self.ask(self.store.queues.change(queue, QueueChange(paused=paused)))
        self.model.queues[queue].paused = paused
        self.check()

    def set_curve(self, queue: str, curve: tuple[float, float] | None) -> None:
        base_s, max_s = curve or (15.0, 3_600.0)
        change = QueueChange(
            backoff_enabled=curve is not None, backoff_base_s=base_s, backoff_max_s=max_s
        )
        self.ask(self.store.queues.change(queue, change))
        self.model.queues[queue].curve = curve
        self.check()

    def open_gate(self, queue: str) -> None:
        self.ask(self.store.queues.open_gate(queue))
        self.model.gates.pop(queue, None)
        self.check()

    def change_limit(self, name: str, concurrency: int | None) -> None:
        """A change may admit held jobs of other buckets too: ``admit`` does that before."""
        self.admit()
        self.ask(self.store.limits.change(name, LimitChange(concurrency=concurrency)))
        self.model.limits[name].concurrency = concurrency
        self.model.reapply_limit(name)
        self.check()

    def unhold(self, limit_bucket: str, limit: int) -> None:
        admitted = self.ask(self.store.jobs.unhold(limit_bucket, limit=limit))
        assert admitted == self.model.unhold(limit_bucket, limit)
        self.check()

    def admit(self) -> None:
        """The safety net: admits held jobs whose limit bucket has room."""
        self.ask(self.store.limits.admit(limit=ALL))
        self.model.admit(*self.model.all_buckets())
        self.check()

    def compare_all(self) -> None:
        """Compare what the contracts return besides records."""
        self.compared = False
        self.factory.runner.run(self._compare_all())
        self.compared = True

    def final_check(self) -> None:
        """The end of an example: what is purged, which job holds each dedupe key, and what can
        still be claimed."""
        self.compare_all()
        self.advance_time(1, beat=True)
        for queue in requests.QUEUES:
            self.purge(Retention(queue=queue, done_s=0.5, dead_s=0.5, cancelled_s=0.5))
        asked = {"queue": "free", "priority": 9}
        for kind in requests.KINDS[:3]:
            options = [{**asked, "kind": kind, "dedupe_key": key} for key in ("k1", "k2")]
            self.store_jobs([self.new_job(Asked(one)) for one in options])
        self.advance_time(200, beat=True)
        self.claim(0, [Want(queue, 99) for queue in requests.QUEUES])
        self.compare_all()

    async def _compare_all(self) -> None:
        store, model = self.store, self.model
        compare.check_totals(model, await store.metrics.totals())
        compare.check_failures(model, await store.error_groups.seen())
        living = [one.host_id for one in model.processes.values() if one.alive(model.now)]
        assert [one.host_id for one in await store.processes.all()] == sorted(living)
        for owner in self.owners:
            seen = {(row.claim, row.exchange, row.started) for row in await store.jobs.owned(owner)}
            assert seen == {
                (Claim(job.key, job.epoch), job.number, job.started) for job in model.owned(owner)
            }
        for name in requests.SET_UP:
            config = await store.queues.get(name)
            assert config is not None
            gate = model.gate(name)
            assert (config.gate.until, config.gate.count) == (gate.until, gate.count)
        oldest: dict[str, int] = {}
        for job in model.jobs.values():
            if job.status is PENDING:
                oldest[job.queue] = min(oldest.get(job.queue, job.run_at), job.run_at)
        heads: dict[tuple[str | None, int], Job] = {}
        for job in sorted(model.jobs.values(), key=lambda job: job.key):
            if job.status is HELD:
                heads.setdefault((job.limit_bucket, job.asked.priority), job)
        for job in heads.values():
            oldest[job.queue] = min(oldest.get(job.queue, job.run_at), job.run_at)
        assert await store.metrics.oldest_due() == oldest
        for key in requests.KEYS:
            limit_bucket = await store.limits.bucket(key)
            assert (limit_bucket.taken, limit_bucket.capacity) == (
                model.key_taken(key),
                model.max_per_key(key),
            )


def matches(job: Job, wanted: Filter) -> bool:
    """Whether a job fits the filters of this machine."""
    return (
        wanted.queue in (None, job.queue)
        and wanted.kind in (None, job.kind)
        and (not wanted.statuses or job.status in wanted.statuses)
        and (wanted.tag is None or wanted.tag in job.asked.tags)
        and wanted.dedupe_key in (None, job.asked.dedupe_key)
    )
