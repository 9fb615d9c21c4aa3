"""The gateway storm: kill -9 at each step from the socket to the sent message.

A gateway serves many bots and is killed repeatedly, each time at another step, while Telegram keeps
delivering. No update is lost, every chat gets its replies in order, and a user gets a message twice
only where that is documented (docs/decisions/0078). ``--kills`` are rounds, ``--jobs`` updates.
"""

import asyncio
import random
import signal
from dataclasses import dataclass
from pathlib import Path

from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.databases import Database, open_database, states
from rigs.storms.gateway_checks import GatewayEvidence, check_gateway
from rigs.storms.gateway_rig import TERMINAL, GatewayRig, gateway_rig
from rigs.storms.gateway_steps import STEPS, Step
from rigs.storms.history import now
from rigs.storms.rig import StormFailed

BACKENDS = ("sqlite", "postgres")
SLUGS = ("echo-a", "echo-b", "shop-a", "shop-b")
# Updates that are interrupted by several kills must not become dead.
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


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if every check passed."""
    options = arguments.apply(GatewayOptions(), QUICK)
    print(
        f"Gateway storm on {backend}: {options.jobs:,} updates to {len(SLUGS)} bots, "
        f"{options.kills} rounds over {len(STEPS)} steps, seed {options.seed}.",
        flush=True,
    )
    try:
        with arguments.folder() as folder, open_database(backend, folder) as database:
            evidence = asyncio.run(_run_storm(options, folder, database))
            report = check_gateway(evidence)
            reached = {entry["step"] for entry in evidence.entries if entry["op"] == "killed"}
            if options.kills >= len(STEPS):
                report.findings["steps never reached"] = [*(STEPS.keys() - reached)]
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED: {failure}")
        return False
    return True


async def _run_storm(options: GatewayOptions, folder: Path, database: Database) -> GatewayEvidence:
    async with gateway_rig(folder, database, SLUGS, attempts=ATTEMPTS) as rig:
        await _run_rounds(rig, options)
        await _wait_until_idle(rig, options)
        return await rig.evidence()


async def _run_rounds(rig: GatewayRig, options: GatewayOptions) -> None:
    """Start a gateway per round, send it a share of the updates, and kill it at its step."""
    rng = random.Random(options.seed)
    began = logged_at = now()
    for number, step in enumerate(plan(options.kills, rng)):
        share = (options.jobs - rig.users.sent) // (options.kills - number)
        # Few: one exchange may finish all updates of a round.
        hits = 1 if step.starting or step.dead_only else rng.randint(1, MAX_HITS)
        send_random_messages(rig, rng, share - share // 2, options.chats)
        await rig.start(step.name, hits=hits, armed=step.starting)
        if not step.starting:
            await _let_it_work(rig, rng, options)
            rig.processes.signal(signal.SIGUSR1)
        send_random_messages(rig, rng, share // 2, options.chats)
        await rig.wait_killed(options.reach_s)
        if now() - logged_at >= 5:
            logged_at = now()
            rig.say(
                f"{now() - began:5.0f} s   {number + 1} of {options.kills} rounds   "
                f"{rig.users.sent:,} updates   {rig.users.missing():,} not answered"
            )


async def _let_it_work(rig: GatewayRig, rng: random.Random, options: GatewayOptions) -> None:
    """Let the gateway catch up, but not completely, so that every step is in use."""
    await rig.wait_ready()
    end = now() + options.catch_up_s
    while rig.users.missing() > options.behind and now() < end:
        await asyncio.sleep(0.1)
    await asyncio.sleep(rng.uniform(0, options.work_s))


def plan(rounds: int, rng: random.Random) -> list[Step]:
    """Every step equally often, in random order."""
    found: list[Step] = []
    while len(found) < rounds:
        found += rng.sample([*STEPS.values()], len(STEPS))
    return found[:rounds]


def send_random_messages(rig: GatewayRig, rng: random.Random, share: int, chats: int) -> None:
    """Send messages as users; some of them will be refused by the service."""
    shops = [slug for slug in SLUGS if slug.startswith("shop")]
    for number in range(share):
        if number < REFUSED_PER_TURN:
            rig.users.say_refused(rng.choice(shops))
        else:
            rig.users.say(rng.choice(SLUGS), rng.randint(1, chats))


async def _wait_until_idle(rig: GatewayRig, options: GatewayOptions) -> None:
    """Start a gateway without kills and wait until everything is done."""
    await rig.start()
    rig.say(f"Draining: {rig.users.missing():,} replies are missing.")
    await wait_until_quiet(rig, options.drain_s)
    await rig.stop()


async def kill_at_each_step(rig: GatewayRig, steps: list[Step], within_s: float) -> dict[str, str]:
    """One round per step, each with one chat and no other work; returns the first message of each.

    Steps of the startup are armed from the start, all others once all earlier updates are done.
    """
    first: dict[str, str] = {}
    for number, step in enumerate(steps):
        if step.starting:
            first[step.name] = _send_messages(rig, step, number)
        await rig.start(step.name, armed=step.starting)
        if not step.starting:
            await wait_until_quiet(rig, within_s)
            await rig.wait_ready()
            rig.processes.signal(signal.SIGUSR1)
            first[step.name] = _send_messages(rig, step, number)
        if not await rig.wait_killed(within_s):
            raise StormFailed(f"{step.name} was never reached:\n{rig.processes.log_tail()}")
    await rig.start()
    await wait_until_quiet(rig, within_s)
    await rig.stop()
    return first


def _send_messages(rig: GatewayRig, step: Step, number: int) -> str:
    if step.dead_only:
        return rig.users.say_refused("shop")
    slug = "shop" if number % 2 else "echo"
    first, *_ = [rig.users.say(slug, 1 + number) for _ in range(PER_CHAT)]
    return first


async def wait_until_quiet(rig: GatewayRig, within_s: float, *, missing: int = 0) -> None:
    """Wait until every reply but ``missing`` was sent and every job is terminal."""

    def is_quiet() -> bool:
        if rig.users.missing() > missing or rig.users.waiting():
            return False
        return all(status in TERMINAL for status in states(rig.database))

    await rig.wait_until(is_quiet, within_s, "quiet")
