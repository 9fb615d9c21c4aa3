"""kill -9 at each step from the socket to the sent message, one round per step.

The full storm is ``make storm``; this is its smallest form, and the test of its checker.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rigs.storms.databases import Database, PostgresDatabase, SqliteDatabase
from rigs.storms.gateway import kill_at_each_step, wait_until_quiet
from rigs.storms.gateway_checks import GatewayEvidence, check_gateway
from rigs.storms.gateway_polling import POLLING_STEPS
from rigs.storms.gateway_rig import GatewayRig, gateway_rig
from rigs.storms.gateway_steps import STEPS
from tests.postgres.server import PrivateServer

pytestmark = [pytest.mark.processes, pytest.mark.slow]
BOTS = ("echo", "shop")
WITHIN_S = 60


@pytest.fixture(params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Database]]:
    """Several, for rigs in parallel: on Postgres a round mostly waits for a lease to expire."""
    if request.param == "sqlite":
        files = [SqliteDatabase(tmp_path / f"gateway-{n}.db") for n in range(2)]
        yield [*files]
        for file in files:
            file.close()
        return
    server: PrivateServer = request.getfixturevalue("postgres")
    names = [f"gateway_kill_{n}" for n in range(3)]
    for name in names:
        server.sql(f"CREATE DATABASE {name}")
    urls = [server.url(database=name) for name in names]
    made = [PostgresDatabase(url, [url]) for url in urls]
    yield [*made]
    for database, name in zip(made, names, strict=True):
        database.close()
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[GatewayRig]:
    database = SqliteDatabase(tmp_path / "gateway.db")
    async with gateway_rig(tmp_path, database, BOTS) as made:
        yield made
    database.close()


def findings(evidence: GatewayEvidence) -> dict[str, list[str]]:
    return {name: found for name, found in check_gateway(evidence).findings.items() if found}


def copies(evidence: GatewayEvidence, label: str) -> int:
    slug, chat, text = label.split("/")
    return list(evidence.got[slug, int(chat)]).count(text)


async def test_a_kill_at_each_step_loses_nothing_and_repeats_only_what_is_documented(
    databases: list[Database], tmp_path: Path
) -> None:
    steps = [*STEPS.values()]
    parts = [steps[n :: len(databases)] for n in range(len(databases))]
    arrived: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        rigs: list[GatewayRig] = []
        for number, database in enumerate(databases):
            folder = tmp_path / f"rig-{number}"
            folder.mkdir()
            rigs.append(await stack.enter_async_context(gateway_rig(folder, database, BOTS)))
        firsts = await asyncio.gather(
            *(kill_at_each_step(rig, part, WITHIN_S) for rig, part in zip(rigs, parts, strict=True))
        )
        for rig, part, first in zip(rigs, parts, firsts, strict=True):
            evidence = await rig.evidence()
            assert findings(evidence) == {}
            wrapper = [entry["step"] for entry in evidence.entries if entry["op"] == "killed"]
            assert wrapper == [step.name for step in part]
            # A process that got no CPU for longer than its lease stops its sends by itself.
            starved = {entry["label"] for entry in evidence.entries if entry["op"] == "unsent"}
            arrived |= {
                name: copies(evidence, label)
                for name, label in first.items()
                if label not in starved
            }
    assert {name for name, count in arrived.items() if count != 1} <= {
        name for name, step in STEPS.items() if step.may_repeat
    }
    # Documented: after a kill, only Telegram knows whether it got the message.
    assert arrived.get("answered", 2) == 2


async def test_a_kill_at_each_step_of_polling_loses_nothing(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "gateway.db")
    steps = [*POLLING_STEPS.values()]
    async with gateway_rig(tmp_path, database, BOTS, mode="polling") as rig:
        await kill_at_each_step(rig, steps, WITHIN_S)
        evidence = await rig.evidence()
    database.close()
    assert findings(evidence) == {}
    wrapper = [entry["step"] for entry in evidence.entries if entry["op"] == "killed"]
    assert wrapper == [step.name for step in steps]


async def test_three_consecutive_kills_do_not_make_an_update_dead(rig: GatewayRig) -> None:
    labels: dict[str, str] = {}
    for chat, step in enumerate(("handled", "answered")):
        labels[step] = rig.users.say("echo", 5 + chat)
        for _ in range(3):
            await rig.start(step, armed=True)
            assert await rig.wait_killed(WITHIN_S)
        await rig.start()
        await wait_until_quiet(rig, WITHIN_S)
        await rig.stop()
    evidence = await rig.evidence()
    assert findings(evidence) == {}
    assert {step: copies(evidence, label) for step, label in labels.items()} == {
        "handled": 1,
        "answered": 4,
    }


async def test_an_update_that_crashes_every_process_is_dead_after_its_attempts_with_one_notice(
    rig: GatewayRig,
) -> None:
    rig.users.say_refused("shop")
    for _ in range(5):
        await rig.start("running", armed=True)
        assert await rig.wait_killed(WITHIN_S)
    await rig.start()
    await wait_until_quiet(rig, WITHIN_S)
    await rig.stop()
    evidence = await rig.evidence()
    assert findings(evidence) == {}
    assert [one.status for one in evidence.updates] == ["dead"]


@pytest.mark.parametrize(
    ("sabotage", "step", "found"),
    [
        ("early", "acknowledged", {"updates lost", "nothing was done"}),
        ("unordered", None, {"answers out of order"}),
        ("keyless", "stored", {"updates stored twice", "undocumented repetitions"}),
        ("inside", "handled", {"undocumented repetitions"}),
    ],
)
async def test_the_checker_detects_a_sabotaged_gateway(
    rig: GatewayRig, sabotage: str, step: str | None, found: set[str]
) -> None:
    rig.sabotage = sabotage
    lost = "updates lost" in found
    for _ in range(1 if lost else 3):
        rig.users.say("echo", 5)
    if step is not None:
        await rig.start(step, armed=True)
        assert await rig.wait_killed(WITHIN_S)
    await rig.start()
    # A lost update gets no reply: there is nothing to wait for.
    await wait_until_quiet(rig, WITHIN_S, missing=int(lost))
    await rig.stop()
    assert set(findings(await rig.evidence())) == found
