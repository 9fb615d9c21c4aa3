"""The application of the command line's tests."""

import sys

from forge_jobs import Context, Dead, Forge

forge = Forge()
forge.queue("mail")


@forge.task(queue="mail")
async def send(to: str, ctx: Context) -> str:
    ctx.log.info("sending")
    return f"sent to {to}"


@forge.task(queue="mail")
def refuse(to: str) -> None:
    raise Dead(f"no such mailbox: {to}")


@forge.task(queue="mail")
def loaded() -> list[str]:
    return sorted({name.partition(".")[0] for name in sys.modules})
