"""The public names: all there, and cheap to import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import forge_jobs
from forge_jobs import ForgeError

CONTRACT = """
    Forge Context Retry Dead Throttled Snooze Failed Done
    open_storage QueueRuntime QueueHandle HandlerRegistry JobHandler JobCtx JobOutcome
    Router DefaultRouter KindPrefixRouter RateLimiter AcquireOutcome DEFAULT_RATE_LIMIT_SCOPES
    ensure_default_rate_limits EnqueueRequest EnqueueOutcome FinalizeOutcome JobRecord JobStatus
    NoopEcho CmdExecHandler CmdExecPayload WorkerPoolHandler WorkerPoolConfig
    reap_stale_jobs cleanup_once CleanupReport cron_tick_once CronTickReport metrics_roll_once
    rebalance_once ensure_schedules queues_from_env worker_prefix_from_env worker_version_from_env
    worker_id_from_env DEFAULT_QUEUE_WORKERS DEFAULT_SHUTDOWN_TIMEOUT JobQueue DeadJob
    Clock SYSTEM_CLOCK Entropy SYSTEM_ENTROPY SECRET_ENTROPY prometheus_text QueueChange
"""


@pytest.mark.parametrize("name", CONTRACT.split())
def test_every_name_of_the_contract_can_be_imported(name: str) -> None:
    assert getattr(forge_jobs, name) is not None
    assert name in forge_jobs.__all__
    assert name in dir(forge_jobs)


def test_all_names_resolve_and_the_lists_agree(project_root: Path) -> None:
    for name in forge_jobs.__all__:
        assert getattr(forge_jobs, name) is not None
    text = (project_root / "src" / "forge_jobs" / "__init__.py").read_text()
    block = next(node for node in ast.parse(text).body if isinstance(node, ast.If))
    imported = {
        (node.module or "").removeprefix("forge_jobs."): {alias.name for alias in node.names}
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    assert imported == {home: set(names.split()) for home, names in forge_jobs._NAMES.items()}
    declared = {
        node.target.id
        for node in block.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert declared == {"__version__"}
    assert sorted(forge_jobs.__all__) == sorted(forge_jobs._HOMES)


def test_every_error_is_public_and_has_a_code_of_its_own() -> None:
    seen: dict[str, type] = {}

    def walk(error: type[ForgeError]) -> None:
        assert getattr(forge_jobs, error.__name__) is error
        assert error.code not in seen, f"{error} repeats the code of {seen.get(error.code)}"
        seen[error.code] = error
        for child in error.__subclasses__():
            if child.__module__ == "forge_jobs.core.errors":
                walk(child)

    walk(ForgeError)
    assert len(seen) > 20


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Forg'"):
        _ = forge_jobs.Forg  # type: ignore[attr-defined]
    assert forge_jobs.__version__


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_next_to_nothing() -> None:
    modules = imported_by("import forge_jobs")
    assert {name for name in modules if name.startswith("forge_jobs.")} == set()
    assert not modules & {"asyncio", "msgspec", "sqlite3"}


def test_producers_and_workers_import_no_terminal_libraries() -> None:
    modules = imported_by(
        "import asyncio\n"
        "from forge_jobs import Forge\n"
        "forge = Forge('memory://')\n"
        "@forge.task\n"
        "async def job(): return 1\n"
        "async def main():\n"
        "    async with forge.worker(queues=['default']):\n"
        "        await (await job.aenqueue()).aresult(timeout=30)\n"
        "    await forge.aclose()\n"
        "asyncio.run(main())"
    )
    assert not modules & {"typer", "rich", "click", "pydantic", "starlette", "sqlite3"}


def test_a_producer_does_not_pay_for_the_worker() -> None:
    modules = imported_by("from forge_jobs import Forge\nForge('memory://').enqueue('x', {})")
    assert "forge_jobs.engine.runtime" not in modules
    assert "forge_jobs.engine.claiming.exchange_loop" not in modules
