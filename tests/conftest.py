"""What holds for every test: a clean environment, repeatable examples, nothing left running."""

import faulthandler
import logging
import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import settings

from forge_jobs.kit import log
from tests.dispositions import restore
from tests.postgres.schemas import schemas
from tests.postgres.server import oldest_postgres, postgres
from tests.stores import any_url, shared_url

__all__ = ["any_url", "oldest_postgres", "postgres", "schemas", "shared_url"]

# A developer's own FORGE_URL or DATABASE_URL must reach no test and no child of a test.
for name in list(os.environ):
    if name.startswith("FORGE_") or name == "DATABASE_URL":
        del os.environ[name]

# Under nohup, in a background job or from cron, some signals are ignored.
restore()

# The machine may be slow, so examples carry no deadline; the same commit tries the same examples.
settings.register_profile("forge", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("forge")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """A test that was stopped at its time limit may hang again while its fixtures are taken down,
    and the limit is spent by then: this one ends the process."""
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(400, file=stderr, exit=True)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests first: with ``--no-loadscope-reorder`` the test processes take
    files in this order, and none of them begins a long file when the others have ended."""
    slow = Counter(item.path for item in items if _is_slow(item))
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (-slow[item.path], -sizes[item.path]))


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("slow", "processes"))


_lost: list[object] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """A test process that crashes leaves its remaining tests unrun."""
    if error:
        _lost.append(error)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Such a run must not pass as one with a few failures: the other tests did not run."""
    if _lost:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(scope="session", autouse=True)
def _own_config_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep a developer's own forge.toml out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config-home")))
        yield


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A command that runs in this process configures logging: not for the tests after it."""
    root, ours = logging.getLogger(), logging.getLogger("forge_jobs")
    levels, was_configured = (root.level, ours.level), log.is_configured()
    yield
    if log.is_configured() and not was_configured:
        for handler in [one for one in root.handlers if type(one).__module__ == log.__name__]:
            root.removeHandler(handler)
        logging.captureWarnings(False)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Fail the run, and clean up after it, when a test leaves a process behind."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    _, alive = psutil.wait_procs(left, timeout=30)
    described: list[str] = []
    for child in alive:
        try:
            command = " ".join(child.cmdline())
            if "multiprocessing.resource_tracker" not in command:
                described.append(f"pid {child.pid}: {command}")
                child.kill()
        except psutil.NoSuchProcess:
            continue
    assert not described, "tests left processes running:\n" + "\n".join(described)


@pytest.fixture(scope="session")
def project_root() -> Path:
    return Path(__file__).resolve().parent.parent
