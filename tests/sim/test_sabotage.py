"""Sabotages the code: the campaign must detect each of them."""

from typing import Any

import msgspec
import pytest

from forge_jobs.backends.memory import claims, dedupe_keys, transitions
from forge_jobs.backends.memory.jobs import MemoryJobs
from forge_jobs.backends.memory.processes import MemoryProcesses
from forge_jobs.backends.memory.rows import Row
from forge_jobs.backends.memory.tables import Tables
from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.status import Attempts, Event, JobStatus
from forge_jobs.engine.claiming.finish_buffer import Batch, FinishBuffer
from forge_jobs.store.jobs import Reaped, Retention, Verdict
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
    real = claims.apply_finish

    def unfenced(tables: Tables, owner: int, end: Finish, now: Instant, **options: Any) -> Verdict:
        row = tables.jobs.get(end.key)
        if row is None or row.owner is None:
            return real(tables, owner, end, now, **options)
        claimed = msgspec.structs.replace(end, epoch=row.epoch)
        return real(tables, row.owner, claimed, now, **options)

    monkeypatch.setattr(claims, "apply_finish", unfenced)
    caught_by({"fence"})


def test_the_report_of_a_violation_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lazy(tables: Tables, owner: int, end: Finish, now: Instant, **options: Any) -> Verdict:
        return Verdict.APPLIED

    monkeypatch.setattr(claims, "apply_finish", lazy)
    assert command.main(["--seeds", "3", "--jobs", "10", "--minutes", "0.2"]) == 1
    output = capsys.readouterr().out
    assert "seed 0 broke" in output
    assert "fence: " in output
    assert "--seed 0 --jobs 10 --nodes 3 --minutes 0.2" in output


def test_a_reaper_that_reaps_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reap_old(self: MemoryJobs, *, crash_note: str, limit: int) -> Reaped:
        tables = self._tables  # pyright: ignore[reportPrivateUsage]
        with tables.write() as now:
            old = [
                row
                for row in tables.jobs.values()
                if row.started and row.status is JobStatus.RUNNING
                and now - (row.started_at or now) > 5 * SECOND
            ]  # fmt: skip
            for row in old:
                claims.reap(tables, row, crash_note, now)
            return Reaped(pending=len(old))

    monkeypatch.setattr(MemoryJobs, "reap", reap_old)
    caught_by({"reap"})


def test_a_release_that_spends_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = transitions._LEGAL | {  # pyright: ignore[reportPrivateUsage]
        (JobStatus.RUNNING, Event.RELEASE, JobStatus.PENDING, Attempts.KEPT)
    }
    monkeypatch.setattr(transitions, "_LEGAL", lenient)

    def burning(tables: Tables, row: Row, now: Instant) -> None:
        transitions.transition(tables, row, Event.RELEASE, JobStatus.PENDING, now)

    monkeypatch.setattr(claims, "release", burning)
    caught_by({"attempts"})


def test_a_heartbeat_on_the_job_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    real = node.Node.__init__

    def one_realm(self: node.Node, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        self._io = self._engine  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(node.Node, "__init__", one_realm)
    caught_by({"innocent"})


def test_a_worker_that_trusts_its_lease_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryProcesses.register

    async def shorter(
        self: MemoryProcesses, process: NewProcess, *, replaces: str | None = None
    ) -> int:
        told = msgspec.structs.replace(process, lease_s=process.lease_s / 4)
        return await real(self, told, replaces=replaces)

    monkeypatch.setattr(MemoryProcesses, "register", shorter)
    caught_by({"start"})


def test_a_batch_of_finishes_dropped_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: FinishBuffer, batch: Batch) -> None:
        self.batch_written()

    monkeypatch.setattr(FinishBuffer, "put_back", forgetful)
    caught_by({"stuck"})


def test_a_purge_that_ignores_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def purge(self: MemoryJobs, keep: Retention, *, limit: int) -> int:
        tables = self._tables  # pyright: ignore[reportPrivateUsage]
        with tables.write() as now:
            rows = [row for row in tables.jobs.values() if row.status is not JobStatus.RUNNING]
            for row in rows:
                transitions.remove(tables, row, now)
            return len(rows)

    monkeypatch.setattr(MemoryJobs, "purge", purge)
    caught_by({"lost"})


def test_an_ignored_dedupe_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(tables: Tables, job: NewJob, now: Instant) -> None:
        return None

    monkeypatch.setattr(dedupe_keys, "holder", nobody)
    caught_by({"dedupe"})


def test_a_repeated_finish_that_stores_its_jobs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = claims.apply_finish

    def generous(tables: Tables, owner: int, end: Finish, now: Instant, **options: Any) -> Verdict:
        verdict = real(tables, owner, end, now, **options)
        if verdict is Verdict.ALREADY:
            for job in end.jobs:
                transitions.insert(tables, job, now)
        return verdict

    monkeypatch.setattr(claims, "apply_finish", generous)
    caught_by({"carried"})
