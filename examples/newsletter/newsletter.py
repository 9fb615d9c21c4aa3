"""A newsletter to a thousand readers, once each. Run: python examples/newsletter/newsletter.py"""

import asyncio
from collections import Counter

from forge_jobs import Dead, Forge, Retry

forge = Forge()
sent: Counter[str] = Counter()
unsubscribed = {"reader7@example.org"}


@forge.task(queue="newsletter", priority=10, max_attempts=4, retry=Retry(base="1m", max="1h"))
async def mail(issue: str, to: str) -> None:
    """``priority=10``: whatever else is in the queue starts first."""
    if to in unsubscribed:  # asked when it is sent, not when it was planned
        raise Dead("unsubscribed")
    sent[to] += 1


@forge.task(queue="newsletter", timeout="10m")
def plan(issue: str, readers: int) -> int:
    """Stores the mails in portions; a second run stores none twice, by their keys."""
    stored = 0
    for start in range(0, readers, 500):
        for number in range(start, min(start + 500, readers)):
            to = f"reader{number}@example.org"
            job = mail.using(dedupe_key=f"{issue}:{to}", dedupe_for="30d", tags=[issue])
            stored += not job.enqueue(issue, to).duplicate
    return stored


async def main() -> None:
    first, again = plan.enqueue("march", 200), plan.enqueue("march", 200)
    async with forge.worker(["newsletter:20"]):
        print("mails:", await first.aresult(timeout=60) + await again.aresult(timeout=60))
        while forge.jobs(kind="mail", status=["pending", "running"]).count():
            await asyncio.sleep(0.05)
    for status in ("done", "dead"):
        print(status, forge.jobs(tag="march", status=status).count())
    print("most to one reader:", max(sent.values()))


if __name__ == "__main__":
    asyncio.run(main())
