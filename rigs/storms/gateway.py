"""The gateway storm: kill -9 at each step from the socket to the sent message.

A gateway serves many bots and is killed at a step of its life, again and again; Telegram keeps
delivering. No update is lost, every chat gets its answers in order, and a user gets a message twice
only where that is documented (docs/decisions/0078). ``--kills`` are rounds, ``--jobs`` updates.
"""

import asyncio
import random
import signal
from dataclasses import dataclass
from pathlib import Path

from rigs.storms.databases import Database, open_database, states
from rigs.storms.gateway_checks import GatewayEvidence, check_gateway
from rigs.storms.gateway_rig import TERMINAL, GatewayRig, gateway_rig
from rigs.storms.gateway_steps import STEPS, Step
from rigs.storms.history import now
from rigs.storms.order import Order, report
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
SLUGS = ("echo-a", "echo-b", "shop-a", "shop-b")
# A handful of updates that a kill interrupts again and again must not be taken for poison.
ATTEMPTS = 20
REFUSED_PER_TURN = 2
MAX_HITS = 2
PER_CHAT = 3


@dataclass(frozen=True)
class GatewayOptions:
    """``jobs`` are updates, ``kills`` rounds; each bot has ``chats``.

    A gateway may be killed once no more than ``behind`` answers are due or ``catch_up_s`` are over,
    and some part of ``work_s`` later.
    """

    jobs: int = 10_000
    kills: int = 200
    chats: int = 100
    seed: int = 0
    behind: int = 100
    catch_up_s: float = 6.0
    work_s: float = 0.5
    reach_s: float = 15.0
    drain_s: float = 900.0


QUICK = GatewayOptions(jobs=600, kills=len(STEPS), chats=30, drain_s=120)


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether every promise was kept."""
    options = order.apply(GatewayOptions(), QUICK)
    print(
        f"Gateway storm on {backend}: {options.jobs:,} updates to {len(SLUGS)} bots, "
        f"{options.kills} rounds over {len(STEPS)} steps, seed {options.seed}.",
        flush=True,
    )
    try:
        with order.folder() as folder, open_database(backend, folder) as database:
            evidence = asyncio.run(_whole(options, folder, database))
            judgement = check_gateway(evidence)
            reached = {entry["step"] for entry in evidence.entries if entry["op"] == "struck"}
            if options.kills >= len(STEPS):
                judgement.findings["steps never reached"] = [*(STEPS.keys() - reached)]
            if not report(judgement):
                raise StormFailed("a promise was broken")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


async def _whole(options: GatewayOptions, folder: Path, database: Database) -> GatewayEvidence:
    async with gateway_rig(folder, database, SLUGS, attempts=ATTEMPTS) as rig:
        await _rage(rig, options)
        await _wait_until_idle(rig, options)
        return await rig.evidence()


async def _rage(rig: GatewayRig, options: GatewayOptions) -> None:
    """Each life gets its share of the updates and dies at its step, at a random one of them."""
    chance = random.Random(options.seed)
    began = said_at = now()
    for number, step in enumerate(plan(options.kills, chance)):
        share = (options.jobs - rig.users.sent) // (options.kills - number)
        # Few: one exchange with the store may end all updates of a round, and all that die in it.
        hits = 1 if step.starting or step.dying else chance.randint(1, MAX_HITS)
        write(rig, chance, share - share // 2, options.chats)
        await rig.begin(step.name, hits=hits, armed=step.starting)
        if not step.starting:
            await _some_work(rig, chance, options)
            rig.lives.signal(signal.SIGUSR1)
        write(rig, chance, share // 2, options.chats)
        await rig.killed(options.reach_s)
        if now() - said_at >= 5:
            said_at = now()
            rig.say(
                f"{now() - began:5.0f} s   {number + 1} of {options.kills} rounds   "
                f"{rig.users.sent:,} updates   {rig.users.missing():,} not answered"
            )


async def _some_work(rig: GatewayRig, chance: random.Random, options: GatewayOptions) -> None:
    """Let the gateway catch up, but not quite, so that every room of the house is in use."""
    await rig.up()
    end = now() + options.catch_up_s
    while rig.users.missing() > options.behind and now() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(chance.uniform(0, options.work_s))


def plan(rounds: int, chance: random.Random) -> list[Step]:
    """Every step equally often, in an order of chance."""
    found: list[Step] = []
    while len(found) < rounds:
        found += chance.sample([*STEPS.values()], len(STEPS))
    return found[:rounds]


def write(rig: GatewayRig, chance: random.Random, share: int, chats: int) -> None:
    """Users write, some of them something that will be refused."""
    shops = [slug for slug in SLUGS if slug.startswith("shop")]
    for number in range(share):
        if number < REFUSED_PER_TURN:
            rig.users.say_refused(chance.choice(shops))
        else:
            rig.users.say(chance.choice(SLUGS), chance.randint(1, chats))


async def _wait_until_idle(rig: GatewayRig, options: GatewayOptions) -> None:
    """A gateway that nobody kills: whatever is left is done within the bound."""
    await rig.begin()
    rig.say(f"Calm: {rig.users.missing():,} answers are due.")
    await quiet(rig, options.drain_s)
    await rig.stopped()


async def step_by_step(rig: GatewayRig, steps: list[Step], within_s: float) -> dict[str, str]:
    """One round per step, each with one chat and nothing else going on; the first message of each.

    Steps of the start come first: they are reached by being born. All others are armed once
    everything before them is through.
    """
    first: dict[str, str] = {}
    for number, step in enumerate(steps):
        if step.starting:
            first[step.name] = _speak(rig, step, number)
        await rig.begin(step.name, armed=step.starting)
        if not step.starting:
            await quiet(rig, within_s)
            await rig.up()
            rig.lives.signal(signal.SIGUSR1)
            first[step.name] = _speak(rig, step, number)
        if not await rig.killed(within_s):
            raise StormFailed(f"{step.name} was never reached:\n{rig.lives.last_words()}")
    await rig.begin()
    await quiet(rig, within_s)
    await rig.stopped()
    return first


def _speak(rig: GatewayRig, step: Step, number: int) -> str:
    if step.dying:
        return rig.users.say_refused("shop")
    slug = "shop" if number % 2 else "echo"
    first, *_ = [rig.users.say(slug, 1 + number) for _ in range(PER_CHAT)]
    return first


async def quiet(rig: GatewayRig, within_s: float, *, missing: int = 0) -> None:
    """Every answer has come, but for ``missing``, and the database knows it."""

    def is_quiet() -> bool:
        if rig.users.missing() > missing or rig.users.waiting():
            return False
        return all(status in TERMINAL for status in states(rig.database))

    await rig.until(is_quiet, within_s, "quiet")
