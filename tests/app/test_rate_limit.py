"""Rate limits as users declare them: in workers, plain calls and child processes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from forge_jobs import BadName, BadOption, Context, Forge, NotFound, Throttled


async def test_a_declared_scope_is_stored_when_a_worker_starts(forge: Forge) -> None:
    forge.rate_limit("smtp", "50/m", burst=5)

    @forge.task(scopes=["smtp"])
    async def send(ctx: Context) -> str:
        await ctx.rate_limit.acquire("smtp")
        return "sent"

    async with forge.worker(queues=["default"]) as handle:
        [bucket] = await handle.storage.token_buckets.all()
        assert (bucket.scope, bucket.capacity) == ("smtp", 5.0)
        assert bucket.refill_per_s == pytest.approx(50 / 60)
        assert await (await send.aenqueue()).aresult(timeout=60) == "sent"
        assert await handle.rate_limit.try_acquire("smtp")


def test_a_plain_call_takes_permits_too(forge: Forge) -> None:
    forge.rate_limit("smtp", "2/h")

    @forge.task
    def send(ctx: Context) -> str:
        ctx.rate_limit.acquire_sync("smtp")
        return "sent"

    assert [send(), send()] == ["sent", "sent"]
    with pytest.raises(Throttled):
        send()


def test_a_plain_call_names_the_known_scopes(forge: Forge) -> None:
    forge.rate_limit("smtp", "2/h")

    @forge.task
    def send(ctx: Context) -> bool:
        return bool(ctx.rate_limit.try_acquire_sync("smpt"))

    with pytest.raises(NotFound, match="known: smtp"):
        send()


def test_bad_declarations_name_the_scope(forge: Forge) -> None:
    with pytest.raises(BadName, match="scope"):
        forge.rate_limit("", "50/m")
    with pytest.raises(BadOption, match="rate limit 'smtp'"):
        forge.rate_limit("smtp", "often")
    with pytest.raises(BadOption, match="burst"):
        forge.rate_limit("smtp", "5/s", burst=0.5)


APP = """
import asyncio
from forge_jobs import Context, Forge

forge = Forge("sqlite:///jobs.db")
forge.rate_limit("gpu", "1/h", burst=2)

@forge.task(cpu=True)
def render(ctx: Context) -> list[bool]:
    return [bool(ctx.rate_limit.try_acquire_sync("gpu")) for _ in range(3)]

async def main() -> None:
    async with forge.worker(queues=["default"]):
        print(await (await render.aenqueue()).aresult(timeout=60))
    await forge.aclose()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.processes
def test_a_child_process_has_permits_of_the_same_buckets(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    assert done.stdout == "[True, True, False]\n", done.stderr
