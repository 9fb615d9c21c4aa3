"""The gateway's door: accepted updates each second, and how long Telegram waits for its answer.

One process sends updates of about 500 bytes over 40 connections (Telegram's default) to one server
process, each connection the next as soon as the last was answered; then 1 connection alone. Ours
answers 200 after the commit, on SQLite (FULL) and on Postgres (synchronous_commit on). The servers
of aiogram and python-telegram-bot answer when the update is in their memory, so they show what the
promise costs, not an equal. Clocks and sender are the same for all, systems take turns.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, percentile, ratio
from benchmarks.processes import Agent
from benchmarks.systems.doors import PATH, SECRET

CONNECTIONS = 40
WAIT_SECONDS = 180.0
OURS = {"gateway, SQLite": ("gateway", "default"), "gateway, Postgres": ("gateway", "postgres")}
PEERS = {
    "aiogram, in memory": ("aiogram", "memory"),
    "python-telegram-bot, in memory": ("python-telegram-bot", "memory"),
}
SYSTEMS = {**OURS, **PEERS}


class Door:
    name = "door"
    title = "the gateway's door beside webhook servers that keep nothing"

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._numbers = iter(range(1, 1 << 60))

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh stores."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        # A smoke run does without aiogram, whose import alone takes seconds.
        few = [label for label in SYSTEMS if not (bench.size.quick and "aiogram" in label)]
        labels = [label for label in few if bench.has(SYSTEMS[label][0])]
        figures = list[Figure]()
        for label in in_turn(labels, number):
            with ExitStack() as stack:
                system, level = SYSTEMS[label]
                place = bench.database() if level == "postgres" else bench.store()
                agent = stack.enter_context(bench.agent(system, stack.enter_context(place), level))
                port = agent.ask("open")["port"]
                figures += self._measured(bench, label, agent, port)
        return figures

    def _measured(self, bench: Bench, label: str, agent: Agent, port: int) -> list[Figure]:
        warm, many = bench.size.jobs(500, 50), bench.size.jobs(6_000, 200)
        asyncio.run(self._sent(port, warm, CONNECTIONS))
        before = self._settled(agent, warm)
        seconds, waits = asyncio.run(self._sent(port, many, CONNECTIONS))
        after = self._settled(agent, warm + many)
        alone = asyncio.run(self._sent(port, bench.size.jobs(500, 20), 1))[1]
        accepted = after["accepted"] - before["accepted"]
        if accepted != many:
            self._problems.append(f"{label}: {accepted} accepted of {many} that were answered")
        cpu = (after["cpu"] - before["cpu"]) / many * 1e6
        return [
            Figure(label, "updates/s", many / seconds, "/s"),
            Figure(label, "p50", percentile(waits, 0.5), "ms"),
            Figure(label, "p99", percentile(waits, 0.99), "ms"),
            Figure(label, "p99, 1 connection", percentile(alone, 0.99), "ms"),
            Figure(label, "cpu an update", cpu, "µs"),
        ]

    def _settled(self, agent: Agent, wanted: int) -> dict[str, float]:
        """The count, once handlers that run behind the answer have caught up."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            told = agent.ask("spent")
            if told["accepted"] >= wanted or time.monotonic() > until:
                return told
            time.sleep(0.02)

    async def _sent(self, port: int, count: int, connections: int) -> tuple[float, list[float]]:
        """Seconds for all of them, and the milliseconds of each."""
        requests = iter([_request(next(self._numbers)) for _ in range(count)])
        waits: list[float] = []
        started = time.perf_counter()
        async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(_connection(port, requests, waits))
        return time.perf_counter() - started, waits

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        best = series.best(list(PEERS), "updates/s")
        outcomes = list[Outcome]()
        for label, target in zip(OURS, (targets.DOOR_SQLITE, targets.DOOR_POSTGRES), strict=True):
            outcomes.append(ratio(target, series.median(label, "updates/s"), best))
        for label, target in zip(OURS, (targets.DOOR_P99, targets.DOOR_P99_POSTGRES), strict=True):
            beside = ", ".join(
                f"{peer.partition(',')[0]} {median:.1f} ms"
                for peer in PEERS
                if (median := series.median(peer, "p99")) is not None
            )
            outcomes.append(Outcome(target, series.median(label, "p99"), beside))
        return outcomes


async def _connection(port: int, requests: Iterator[bytes], waits: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for request in requests:
            started = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise ValueError(f"the server answered {head[:30]!r}")
            await reader.readexactly(_length(head))
            waits.append((time.perf_counter() - started) * 1_000)
    finally:
        writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise ValueError("an answer without a length")


def _request(number: int) -> bytes:
    person = {"id": 7_000_000 + number % 500, "is_bot": False, "first_name": "Ada"}
    chat = {"id": person["id"], "first_name": "Ada", "type": "private"}
    entities = [{"offset": 0, "length": 5, "type": "bold"}]
    message = {
        "message_id": number,
        "from": {**person, "last_name": "Lovelace", "language_code": "en"},
        "chat": chat,
        "date": int(time.time()),
        "text": f"message {number}: the analytical engine weaves algebraic patterns, just as the "
        "loom weaves flowers and leaves",
        "entities": entities,
    }
    body = json.dumps({"update_id": number, "message": message}).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
