"""Tests of the scraper against a site on this machine."""

import os

from scraper import fetch, forge, visit
from site_to_scrape import LINKS, serve

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


def test_every_page_is_fetched_once_and_a_busy_one_later():
    with serve() as (address, requests), testing.frozen(forge) as time:
        visit.enqueue(f"{address}/")
        for _ in range(30):
            forge.drain().run()
            if not testing.enqueued(forge, fetch, status="scheduled"):
                break
            time.advance("1s")
    done = testing.assert_enqueued(forge, fetch, status="done", times=len(LINKS))
    titles = {job.result(timeout=0) for job in done}
    assert titles == {f"page {path}" for path in LINKS}
    assert requests.paths.count("/busy") == 2
    assert all(requests.paths.count(path) == 1 for path in LINKS if path != "/busy")
    [busy] = [job for job in done if job.payload["url"].endswith("/busy")]
    assert busy.attempts == 1, "being asked to wait spends no attempt"
    [gone] = testing.assert_enqueued(forge, fetch, status="dead")
    assert gone.error == "not found"
