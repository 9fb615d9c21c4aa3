"""The code under test: an application with two tasks."""

from forge_jobs import Context, Forge, Retry

forge = Forge()


@forge.task(queue="mail", max_attempts=3, retry=Retry(base="1m", max="1h", jitter=0))
async def send_mail(to: str, text: str, ctx: Context) -> str:
    if to == "flaky@example.com" and ctx.job.attempts < 3:
        raise ConnectionError("the mail server does not answer")
    return f"sent to {to}"


@forge.task(queue="orders")
def order(customer: str, items: list[str], ctx: Context) -> int:
    if not items:
        raise ValueError("nothing ordered")
    ctx.on_done(send_mail, customer, f"thank you for {len(items)} items")
    return len(items)
