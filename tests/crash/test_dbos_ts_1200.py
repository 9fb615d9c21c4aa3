"""dbos-ts#1200: workflows that sleep must not keep a process from stopping within its grace."""

import signal
import time

import pytest

from tests.crash.conftest import Site

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SLEEPERS = 10_000


def test_sigterm_with_10_000_sleepers_ends_within_the_grace(site: Site) -> None:
    grace = 30
    site.fill("sleep_durably", SLEEPERS)
    worker = site.worker(lease=10, grace=grace, slots=100)
    site.until(lambda: site.forge.jobs(status="scheduled").count() == SLEEPERS, 240)
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(grace + 60) == 0
    assert time.monotonic() - began < grace
    assert site.forge.jobs(status="scheduled").count() == SLEEPERS
    assert "Traceback" not in site.log_text()
