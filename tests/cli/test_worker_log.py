"""The log of ``forge worker`` as a real process: the application's records, levels, tracebacks."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import TIMEOUT_S, Shell, stop

pytestmark = pytest.mark.processes

APP = """
import logging
import warnings

from forge_jobs import Forge, Retry

{extra}
forge = Forge()
log = logging.getLogger("shop.orders")
PRICES = {{"tea": 3}}
ONCE = Retry(never=(KeyError,))


def price(name: str) -> int:
    return PRICES[name]


def work(name: str) -> int:
    log.debug("a detail")
    log.info("pricing %s", name)
    warnings.warn("the old way", stacklevel=1)
    return price(name)


@forge.task(queue="q", retry=ONCE)
async def on_loop(name: str) -> int:
    return work(name)


@forge.task(queue="q", retry=ONCE)
def in_thread(name: str) -> int:
    return work(name)


@forge.task(queue="q", retry=ONCE, cpu=True)
def in_child(name: str) -> int:
    return work(name)
"""
KINDS = ("on_loop", "in_thread", "in_child")
CODE = "return PRICES[name]"


def run_jobs(
    folder: Path, *options: str, extra: str = "", command: str = "worker", **variables: str
) -> tuple[str, dict[str, str]]:
    """The log of a worker that ran one failing job of each kind, and the jobs' ids by kind."""
    shell = Shell(folder)
    (folder / "shop.py").write_text(textwrap.dedent(APP).format(extra=extra))
    log = folder / "worker.log"
    environment = {**shell.environment, **variables, "PYTHONWARNINGS": "always"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", command, "shop:forge", "--queues", "q", *options],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            ids = {
                kind: shell.ok("enqueue", kind, '{"name": "coffee"}', "--queue", "q").strip()
                for kind in KINDS
            }
            for job_id in ids.values():
                shell.wait_for(job_id, "dead")
            assert stop(process) == 0  # type: ignore[arg-type]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(TIMEOUT_S)
    return log.read_text(), ids


def test_u1_u10_json_lines_carry_the_job_and_the_traceback(tmp_path: Path) -> None:
    text, ids = run_jobs(tmp_path, "--log-format", "json")
    lines = [json.loads(line) for line in text.splitlines()]

    def by_kind(logger: str) -> dict[str, dict[str, Any]]:
        return {line["kind"]: line for line in lines if line["logger"] == logger and "kind" in line}

    own, warned, dead = map(by_kind, ("shop.orders", "py.warnings", "forge_jobs.engine"))
    for kind, job_id in ids.items():
        for line in (own[kind], warned[kind], dead[kind]):
            assert (line["job_id"], line["queue"], line["attempt"]) == (job_id, "q", 1)
        assert own[kind]["message"] == "pricing coffee"
        assert "the old way" in warned[kind]["message"]
        assert re.fullmatch(
            rf"job is dead: {kind} {job_id} queue=q attempt 1/\d: KeyError: 'coffee' "
            r"\(shop\.py:\d+\)",
            dead[kind]["message"],
        )
        assert CODE in dead[kind]["trace"]
        assert "shop.py" in dead[kind]["trace"].splitlines()[1]
    assert "a detail" not in text


def test_u10_text_lines_show_debug_records_and_each_job(tmp_path: Path) -> None:
    text, ids = run_jobs(tmp_path, "--log-level", "debug")
    for kind, job_id in ids.items():
        fields = f"job_id={job_id} kind={kind} queue=q attempt=1"
        assert f"DEBUG   shop.orders a detail {fields}\n" in text
        assert f"INFO    shop.orders pricing coffee {fields}\n" in text
        assert f"DEBUG   forge_jobs.engine job started: {kind} {job_id} queue=q" in text
    assert text.count(CODE) == len(KINDS)


@pytest.mark.parametrize("way", ["option", "variable"])
def test_u10_a_level_quiets_the_log(tmp_path: Path, way: str) -> None:
    if way == "option":
        text, _ = run_jobs(tmp_path, "--log-level", "ERROR", "--log-jobs")
    else:
        text, _ = run_jobs(tmp_path, FORGE_LOG_LEVEL="error", FORGE_LOG_JOBS="1")
    assert "pricing" not in text
    assert "worker started" not in text
    assert "job started" not in text
    assert text.count("job is dead") == len(KINDS)


def test_u10_logging_that_the_application_configures_wins(tmp_path: Path) -> None:
    extra = textwrap.dedent(
        """
        import logging.config
        logging.config.dictConfig({
            "version": 1,
            "filters": {"job": {"()": "forge_jobs.JobLogFilter"}},
            "formatters": {"own": {"format": "OWN %(name)s [%(job_id)s] %(message)s"}},
            "handlers": {"out": {
                "class": "logging.StreamHandler", "formatter": "own", "filters": ["job"]}},
            "root": {"level": "INFO", "handlers": ["out"]},
        })
        """
    )
    text, ids = run_jobs(tmp_path, "--log-jobs", extra=extra)
    for kind in ("on_loop", "in_thread"):
        assert f"OWN shop.orders [{ids[kind]}] pricing coffee\n" in text
        assert f"OWN forge_jobs.engine [{ids[kind]}] job is dead: {kind} {ids[kind]}" in text
        assert f"OWN forge_jobs.engine [{ids[kind]}] job started: {kind}" in text
    assert "OWN forge_jobs.worker [None] worker started" in text


@pytest.mark.parametrize(
    ("words", "variables", "complaint"),
    [
        (["--log-level", "loud"], {}, "--log-level 'loud': use debug, info, warning or error"),
        ([], {"FORGE_LOG_LEVEL": "loud"}, "FORGE_LOG_LEVEL 'loud': use debug"),
    ],
)
def test_u10_an_unknown_level_is_refused(
    shell: Shell, words: list[str], variables: dict[str, str], complaint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = shell.forge("worker", "sample_app:forge", *words)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
