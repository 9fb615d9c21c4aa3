"""A polite scraper: two pages of a host at once, ten a second, pauses when asked to.

Run: python examples/scraper/scraper.py
"""

import asyncio
import re
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from site_to_scrape import serve

from forge_jobs import Context, Dead, Forge, Retry, Throttled

forge = Forge()
MAX_PAGES = 50


def download(url: str) -> str:
    try:
        with urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except HTTPError as error:
        if error.code == 429:
            wait = error.headers.get("Retry-After", "30")
            raise Throttled(retry_after=float(wait), scope="crawler") from None
        if error.code == 404:
            raise Dead("not found") from None
        raise  # a 500: tried again, as Retry says


@forge.task(
    queue="crawl",
    max_attempts=4,
    timeout="60s",
    retry=Retry(base="30s", max="10m"),
    concurrency=2,
    per="args.host",
    rate="10/s",
    scopes=["crawler"],
)
def fetch(host: str, url: str, ctx: Context) -> str:
    page = download(url)
    for link in re.findall(r'href="([^"]+)"', page):
        ctx.on_done(visit, urljoin(url, link))
    found = re.search(r"<title>(.*?)</title>", page)
    return found[1] if found else url


@forge.task(queue="crawl")
def visit(url: str) -> None:
    """Each page once a day, whoever links to it."""
    host = urlsplit(url).netloc
    if forge.jobs(kind="fetch").count() < MAX_PAGES:
        fetch.using(dedupe_key=url[-200:], dedupe_for="1d").enqueue(host, url)


async def main() -> None:
    with serve() as (address, requests):
        visit.enqueue(f"{address}/")
        async with forge.worker(["crawl:8"]):
            while forge.jobs(status=["pending", "held", "running", "scheduled"]).count():
                await asyncio.sleep(0.1)
        for job in sorted(forge.jobs(kind="fetch"), key=lambda one: one.id):
            print(job.result(timeout=0) if job.status == "done" else f"{job.status}: {job.error}")
        print("at most two at once:", max(requests.at_once) <= 2)


if __name__ == "__main__":
    asyncio.run(main())
