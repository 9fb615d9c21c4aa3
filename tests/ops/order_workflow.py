"""A workflow for tests of what people see of steps: it charges, waits for a payment, ships."""

from forge_jobs import Context, Dead, Forge


def order_shop(url: str, *, parts: tuple[str, ...] = ("box", "label")) -> Forge:
    """``order(number)`` waits for ``paid`` with the key of its number; the address of the payload
    ``{"address": "nowhere"}`` kills the job. ``approval()`` waits without a key. Another version of
    the code has other ``parts``."""
    forge = Forge(url)

    async def charge(number: int) -> dict[str, str]:
        return {"id": f"ch_{number}", "password": "hunter2"}

    async def fetch(part: str) -> str:
        return part.upper()

    async def ship(address: str | None) -> str:
        return f"shipped to {address}"

    @forge.task(queue="orders", max_attempts=1)
    async def order(number: int, ctx: Context) -> str:
        await ctx.step("charge", charge, number)
        for part in parts:
            await ctx.step.using(key=part)("fetch", fetch, part)
        paid = await ctx.wait_for("paid", key=number, timeout="3d")
        address = paid.get("address") if isinstance(paid, dict) else None
        shipped = await ctx.step("ship", ship, address)
        if address == "nowhere":
            raise Dead(f"no way to {address}")
        return shipped

    @forge.task(queue="orders", max_attempts=1)
    async def approval(ctx: Context) -> object:
        return await ctx.wait_for("approve")

    return forge
