"""Sabotages the code: the campaign must detect each of them."""

from typing import Any

import msgspec
import pytest

from forge_jobs.backends.shared.rowwise import finish as finishing
from forge_jobs.backends.shared.rowwise import transitions
from forge_jobs.backends.shared.rowwise.jobs import RowwiseJobs
from forge_jobs.backends.shared.rowwise.processes import RowwiseProcesses
from forge_jobs.backends.shared.rowwise.rows import Row
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.core import decide
from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.outcome import Missing
from forge_jobs.core.status import Attempts, Event, JobStatus
from forge_jobs.engine.claiming.finish_buffer import Batch, FinishBuffer
from forge_jobs.engine.running.handover import Handover
from forge_jobs.store.job_upkeep import Reaped
from forge_jobs.store.jobs import Retention, Verdict
from forge_jobs.store.processes import NewProcess
from rigs.simulation import __main__ as command
from rigs.simulation import node
from rigs.simulation.world import Options, SimulationResult, simulate

OPTIONS = Options()
MAX_SEEDS = 40


def caught_by(rules: set[str]) -> SimulationResult:
    """The first seed that violates one of these rules."""
    others: set[str] = set()
    for seed in range(MAX_SEEDS):
        ended = simulate(seed, OPTIONS)
        broken = {violation.rule for violation in ended.violations}
        if broken & rules:
            return ended
        others |= broken
    raise AssertionError(f"not detected in {MAX_SEEDS} seeds, only {others}")


def test_a_finish_that_ignores_owner_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = finishing.finish_row

    def unfenced(
        tx: Transaction, owner: int, end: Finish, row: Row | None, **options: Any
    ) -> Verdict:
        if row is None or row.owner is None:
            return real(tx, owner, end, row, **options)
        claimed = msgspec.structs.replace(end, epoch=row.epoch)
        return real(tx, row.owner, claimed, row, **options)

    monkeypatch.setattr(finishing, "finish_row", unfenced)
    caught_by({"fence"})


def test_the_report_of_a_violation_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lazy(tx: Transaction, owner: int, end: Finish, row: Row | None, **options: Any) -> Verdict:
        return Verdict.APPLIED

    monkeypatch.setattr(finishing, "finish_row", lazy)
    assert command.main(["--seeds", "3", "--jobs", "10", "--minutes", "0.2"]) == 1
    output = capsys.readouterr().out
    assert "seed 0 broke" in output
    assert "fence: " in output
    assert "--seed 0 --jobs 10 --nodes 3 --minutes 0.2" in output


def test_a_reaper_that_reaps_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reap_old(self: RowwiseJobs, *, crash_note: str, limit: int) -> Reaped:
        with self._storage.write() as tx:  # pyright: ignore[reportPrivateUsage]
            old = [
                row
                for row in tx.load(list(tx.tables.jobs)).values()
                if row.status is JobStatus.RUNNING
                and tx.now - (row.started_at or tx.now) > 5 * SECOND
            ]
            for row in old:
                finishing.reap(tx, row, crash_note)
            tx.store(old)
            return Reaped(pending=len(old))

    monkeypatch.setattr(RowwiseJobs, "reap", reap_old)
    caught_by({"reap"})


def test_a_release_that_spends_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = transitions._LEGAL | {  # pyright: ignore[reportPrivateUsage]
        (JobStatus.RUNNING, Event.RELEASE, JobStatus.PENDING, Attempts.KEPT)
    }
    monkeypatch.setattr(transitions, "_LEGAL", lenient)

    def burning(tx: Transaction, row: Row) -> None:
        transitions.transition(tx, row, Event.RELEASE, JobStatus.PENDING)

    monkeypatch.setattr(finishing, "release", burning)
    caught_by({"attempts"})


def test_a_heartbeat_on_the_job_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    real = node.Node.__init__

    def one_realm(self: node.Node, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        self._io = self._engine  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(node.Node, "__init__", one_realm)
    caught_by({"innocent"})


def test_a_worker_that_trusts_its_lease_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RowwiseProcesses.register

    async def shorter(
        self: RowwiseProcesses, process: NewProcess, *, replaces: str | None = None
    ) -> int:
        told = msgspec.structs.replace(process, lease_s=process.lease_s / 4)
        return await real(self, told, replaces=replaces)

    monkeypatch.setattr(RowwiseProcesses, "register", shorter)
    caught_by({"start"})


def test_a_batch_of_finishes_dropped_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: FinishBuffer, batch: Batch) -> None:
        self.batch_written()

    monkeypatch.setattr(FinishBuffer, "put_back", forgetful)
    caught_by({"stuck"})


def test_a_purge_that_ignores_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def purge(self: RowwiseJobs, keep: Retention, *, limit: int) -> int:
        with self._storage.write() as tx:  # pyright: ignore[reportPrivateUsage]
            rows = tx.load(list(tx.tables.jobs)).values()
            ended = [row for row in rows if row.status is not JobStatus.RUNNING]
            transitions.delete(tx, ended)
            return len(ended)

    monkeypatch.setattr(RowwiseJobs, "purge", purge)
    caught_by({"lost"})


def test_a_service_that_can_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: RowwiseJobs, keep: Retention, *, limit: int) -> int:
        raise AttributeError("no such table")

    monkeypatch.setattr(RowwiseJobs, "purge", broken)
    caught_by({"service"})


def test_an_ignored_dedupe_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(self: Transaction, kind: str, dedupe_key: str) -> None:
        return None

    monkeypatch.setattr(Transaction, "key_holder", nobody)
    caught_by({"dedupe"})


def test_a_repeated_finish_that_stores_its_jobs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = finishing.finish_row

    def generous(
        tx: Transaction, owner: int, end: Finish, row: Row | None, **options: Any
    ) -> Verdict:
        verdict = real(tx, owner, end, row, **options)
        if verdict is Verdict.ALREADY:
            tx.insert(end.jobs)
        return verdict

    monkeypatch.setattr(finishing, "finish_row", generous)
    caught_by({"carried"})


def test_u4_a_worker_that_kills_what_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(job: ClaimedJob, outcome: Missing, *rest: object) -> object:
        return decide._Decision(Event.DIE, JobStatus.DEAD, error="no fit")  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(decide, "_missing", kill)
    caught_by({"refused"})


def test_u4_a_worker_that_asks_nobody_before_a_value_is_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(self: Handover, *args: object) -> bool:
        return False

    monkeypatch.setattr(Handover, "_is_elsewhere", nowhere)
    caught_by({"refused"})


def test_u4_a_refusal_that_spends_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = transitions._LEGAL | {  # pyright: ignore[reportPrivateUsage]
        (JobStatus.RUNNING, Event.MISSING, JobStatus.SCHEDULED, Attempts.KEPT)
    }
    monkeypatch.setattr(transitions, "_LEGAL", lenient)
    returning = finishing._GIVES_ATTEMPT_BACK  # pyright: ignore[reportPrivateUsage]
    others = tuple(event for event in returning if event is not Event.MISSING)
    monkeypatch.setattr(finishing, "_GIVES_ATTEMPT_BACK", others)
    caught_by({"attempts"})
