"""``forge stats``: percentiles by kind, Prometheus text, and ``--watch``."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs import Forge
from forge_jobs.cli.commands import run


@pytest.fixture
def url(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/jobs.db"
    forge = Forge(address)

    @forge.task(queue="mail", kind="send")
    async def send(n: int) -> None: ...

    send.enqueue_many([(n,) for n in range(5)])
    forge.client.access.run(lambda _: forge.drain())
    forge.close()
    return address


def test_percentiles_by_kind(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "--url", url]) == 0
    text = capsys.readouterr().out
    assert "WAIT P50" in text
    [line] = [line for line in text.splitlines() if line.startswith("send ")]
    assert line.split()[:3] == ["send", "mail", "5"]
    assert run(["stats", "--url", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [kind] = found["kinds"]
    assert (kind["queue"], kind["kind"], kind["whole"]["done"]) == ("mail", "send", 5)
    assert kind["whole"]["ran"]["count"] == 5
    assert kind["whole"]["ran"]["p99_s"] >= kind["whole"]["ran"]["p50_s"] > 0
    assert found["counts"]["done"] == 5


def test_prometheus_text(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "--url", url, "--prometheus"]) == 0
    families = text_string_to_metric_families(capsys.readouterr().out)
    done = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == "forge_jobs_done_total"
    ]
    assert done == [5]


def test_watch_repeats_until_ctrl_c(url: str) -> None:
    command = [sys.executable, "-u", "-m", "forge_jobs", "stats", "--watch", "--url", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        deadline, headlines = time.monotonic() + 60, 0
        while headlines < 2 and time.monotonic() < deadline:
            headlines += "5 done" in process.stdout.readline()
        assert headlines == 2
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in complaints
    finally:
        process.kill()
        process.communicate()
