"""cmd_exec: no process, folder or descriptor of a command is left, however it ends."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from forge_jobs import CmdExecHandler, Dead, Done, EngineSettings, Failed, Forge
from forge_jobs.handlers import Choice, Command, Text
from forge_jobs.store.processes import NewProcess
from rigs.storms.commands import SURVIVORS_ARE_SEEN, Commands
from tests.handlers.conftest import HandlerHarness, RecordedContext, alive, gone_within, numbers_in

HERE = Path(__file__).parent
ACTS = [
    "quick",
    "daemon",
    "daemon-and-wait",
    "family",
    "ignores-sigterm",
    "exits-on-sigterm",
    "endless",
]

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("no_scratch_left")]


def command_handler(**options: Any) -> CmdExecHandler:
    command = Command(
        sys.executable,
        [str(HERE / "command_program.py"), "{act}", "{file}"],
        {"act": Choice(ACTS), "file": Text()},
    )
    return CmdExecHandler(
        commands={"program": command}, grace_s=options.pop("grace_s", 1), **options
    )


def command_payload(act: str, path: Path, **more: Any) -> dict[str, Any]:
    return {"command": "program", "args": {"act": act, "file": str(path)}, **more}


COUNTS = {"family": 5, "ignores-sigterm": 1, "daemon-and-wait": 2, "exits-on-sigterm": 1}


async def test_A18_a_timeout_kills_all_descendants(harness: HandlerHarness, tmp_path: Path) -> None:
    async def one(act: str, count: int) -> None:
        recorded, path = RecordedContext(), tmp_path / act
        outcome = await harness.run(
            command_handler(), command_payload(act, path, timeout_secs=5), recorded
        )
        pids = await numbers_in(path, count)
        assert not [pid for pid in pids if alive(pid)], "they are gone before the job has ended"
        assert isinstance(outcome, Failed)
        assert outcome.message == "timed out after 5 s"
        assert recorded.lines[0].message.startswith("timed out after 5 s after ")
        if act == "exits-on-sigterm":
            assert "stdout: hello" in recorded.text
            assert "stderr: goodbye" in recorded.text

    await asyncio.gather(*(one(act, count) for act, count in COUNTS.items()))


async def test_A18_a_cancellation_kills_all_descendants(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    async def one(act: str, count: int) -> None:
        path = tmp_path / act
        running = asyncio.create_task(harness.run(command_handler(), command_payload(act, path)))
        pids = await numbers_in(path, count)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [pid for pid in pids if alive(pid)]

    await asyncio.gather(*(one(act, count) for act, count in COUNTS.items()))


async def test_a_second_cancellation_ends_the_grace_period(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    running = asyncio.create_task(
        harness.run(command_handler(grace_s=50), command_payload("ignores-sigterm", path))
    )
    pids = await numbers_in(path, 1)
    running.cancel()
    await asyncio.sleep(0.2)
    assert alive(pids[0]), "it has its grace"
    running.cancel()
    async with asyncio.timeout(40):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not alive(pids[0])


def _guards_and_commands(path: Path) -> set[int]:
    """Found by their command lines: servers of other tests start and end children of their own."""
    found: set[int] = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(child.cmdline())
            if "guard_main" in words or str(path) in words:
                found.add(child.pid)
    return found


@pytest.mark.parametrize("wait_s", [0, 0.005, 0.02, 0.05])
async def test_a_cancellation_during_the_start(
    harness: HandlerHarness, tmp_path: Path, wait_s: float
) -> None:
    path = tmp_path / "pids"
    before = _guards_and_commands(path)
    running = asyncio.create_task(harness.run(command_handler(), command_payload("family", path)))
    await asyncio.sleep(wait_s)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert _guards_and_commands(path) <= before


async def test_descendants_of_a_finished_command_are_killed(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    handler = CmdExecHandler(
        commands={
            "go": Command(
                "/bin/sh",
                ["-c", '"$0" "$1" daemon "$2"; while [ ! -s "$2" ]; do :; done; echo over',
                 sys.executable, str(HERE / "command_program.py"), str(path)],
            )
        }
    )  # fmt: skip
    outcome = await harness.run(handler, {"command": "go"})
    assert isinstance(outcome, Done), outcome
    assert outcome.value["stdout"] == "over\n"  # type: ignore[index]
    if SURVIVORS_ARE_SEEN:
        assert not alive((await numbers_in(path, 1))[0])


async def test_endless_output_uses_bounded_memory(harness: HandlerHarness, tmp_path: Path) -> None:
    running = asyncio.create_task(
        harness.run(
            command_handler(), command_payload("endless", tmp_path / "pids", timeout_secs=2)
        )
    )
    await asyncio.sleep(1)
    process = psutil.Process()
    before = process.memory_info().rss
    outcome = await running
    assert isinstance(outcome, Failed)
    assert process.memory_info().rss - before < 16 << 20


async def test_fifty_runs_leave_no_process_behind(tmp_path: Path) -> None:
    found = await Commands(runs=50, seed=5, folder=tmp_path).run()
    assert found.problems == []
    assert found.ran == 50
    assert min(found.ends.values()) > 0, found.ends


COUNTED = """
import asyncio, os, sys
from pathlib import Path
from forge_jobs import CmdExecHandler, Failed
from forge_jobs.handlers import Command
from tests.handlers.conftest import HandlerHarness
from tests.handlers.test_cmd_exec_cleanup import command_handler, command_payload

async def main():
    harness, path = HandlerHarness(), Path(sys.argv[1])
    await harness.run(command_handler(), command_payload("quick", path))
    before = sorted(os.listdir("/dev/fd"))
    for act in ("quick", "daemon", "quick"):
        await harness.run(command_handler(), command_payload(act, path))
    missing = CmdExecHandler(commands={"go": Command("/bin/sh", cwd="/nowhere/at/all")})
    assert isinstance(await harness.run(missing, {"command": "go"}), Failed)
    print(sorted(os.listdir("/dev/fd")) == before)

asyncio.run(main())
"""


def test_no_descriptor_leaks(tmp_path: Path, project_root: Path) -> None:
    """In a process of its own: threads of other tests open and close descriptors in this one."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(tmp_path / "pids")],
        cwd=project_root, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# ------------------------------------------------------------------------- with a real worker

WORKER = """
import asyncio, sys
from pathlib import Path
from forge_jobs import Forge
from tests.handlers.test_cmd_exec_cleanup import COUNTS, command_handler, command_payload

async def main():
    async with Forge("memory://") as forge:
        forge.register(command_handler(), queue="shell")
        async with forge.worker(queues=["shell"]):
            for act in COUNTS:
                await forge.aenqueue("cmd_exec", command_payload(act, Path(sys.argv[1]) / act))
            await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_killed_worker_kills_its_commands_within_two_seconds(
    tmp_path: Path, project_root: Path
) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], cwd=project_root)
    try:
        pids = [
            pid for act, count in COUNTS.items() for pid in await numbers_in(tmp_path / act, count)
        ]
        assert all(map(alive, pids))
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        killed = time.monotonic()
        worker.wait()
    assert gone_within(pids, max(0.0, killed + 2 - time.monotonic()))


async def test_the_command_of_a_killed_guard_is_killed(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    running = asyncio.create_task(
        harness.run(command_handler(), command_payload("ignores-sigterm", path))
    )
    pids = await numbers_in(path, 1)
    guard = psutil.Process(pids[0]).parent()
    assert guard is not None
    assert guard.pid != os.getpid()
    guard.kill()
    outcome = await running
    assert isinstance(outcome, Failed)
    assert outcome.message == "killed by signal 9 (SIGKILL)"
    assert gone_within(pids, 30)


async def test_a_shutdown_releases_the_job_and_kills_the_command(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    async with Forge("memory://") as forge:
        forge.register(command_handler(grace_s=30), queue="shell")
        async with forge.worker(queues=["shell"], shutdown_timeout=0.2):
            job = await forge.aenqueue("cmd_exec", command_payload("ignores-sigterm", path))
            pids = await numbers_in(path, 1)
        assert not alive(pids[0])
        record = await (await forge.aready()).jobs.get(job.id)
        assert record is not None
        assert (record.status, record.attempts) == ("pending", 0)


async def test_a_lost_lease_kills_the_command(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    settings = EngineSettings(lease_s=3.0)
    async with Forge("memory://") as forge:
        forge.register(command_handler(), queue="shell")
        async with forge.worker(queues=["shell"], settings=settings, shutdown_timeout=0) as handle:
            await forge.aenqueue("cmd_exec", command_payload("family", path), max_attempts=1)
            pids = await numbers_in(path, 5)
            card = NewProcess(
                host_id="other", label="other", queues=(), pid=1, hostname="h", lease_s=60
            )
            await (await forge.aready()).processes.register(card, replaces=handle.host_id)
            deadline = time.monotonic() + 40
            while any(map(alive, pids)):
                assert time.monotonic() < deadline, "another worker runs the job by now"
                await asyncio.sleep(0.05)


async def test_a_worker_applies_cancellation_and_the_jobs_time_limit(tmp_path: Path) -> None:
    cancelled, late = tmp_path / "cancelled", tmp_path / "late"
    async with Forge("memory://") as forge:
        forge.register(command_handler(), queue="shell", timeout="5s")
        async with forge.worker(queues=["shell"]) as handle:
            first = await forge.aenqueue(
                "cmd_exec", command_payload("family", cancelled), max_attempts=1
            )
            second = await forge.aenqueue(
                "cmd_exec", command_payload("ignores-sigterm", late), max_attempts=1
            )
            pids = [*await numbers_in(cancelled, 5), *await numbers_in(late, 1)]
            assert handle.request_cancel(first.id)
            async with asyncio.timeout(60):
                while (await second.arefresh()).status != "dead":
                    await asyncio.sleep(0.05)
            store = await forge.aready()
            ended = [await store.jobs.get(job.id) for job in (first, second)]
        assert [one and one.status for one in ended] == ["cancelled", "dead"]
        assert ended[1] is not None
        assert ended[1].last_error == "timed out after 5 s"
        assert not [pid for pid in pids if alive(pid)]


# ---------------------------------------------------------------------------- metacharacters


def metacharacters() -> list[str]:
    """300 texts that a shell, a terminal or a parser might interpret."""
    marks = [
        *"`$&|;<>(){}[]*?!~#'\"\\ \t=%^@,:+",
        "$(id)", "`id`", "${HOME}", "$HOME", "&&", "||", ">>", "<<EOF", "2>&1", "%s%n", "%00",
        "..", "../../etc/passwd", "/etc/passwd", "~root", "*.py", "{a,b}", "[a-z]", "!!", "#!",
        "--", "-rf", "--help", "-", "\x1b[31m", "\x07", "\x7f", "\u202e", "\ufeff", "é", "漢字",
        "😀", "\n", "\r\n", "a\nb", "\x01", "''", '""', "\\n", "\\0", "\\\\", "$'\\n'", "",
    ]  # fmt: skip
    texts = list(marks)
    number = 0
    while len(texts) < 300:
        left, right = marks[number % len(marks)], marks[(number * 7 + 3) % len(marks)]
        texts.append(f"{left}x{number}{right}")
        number += 1
    return texts


async def test_300_texts_arrive_byte_for_byte_or_are_refused(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    texts = metacharacters()
    assert len(set(texts)) == 300
    show = "import os, sys; print('|'.join(os.fsencode(a).hex() for a in sys.argv[1:]), end='')"
    any_argv = CmdExecHandler(any_argv=True, cwd_root=str(tmp_path))
    outcome = await harness.run(any_argv, {"argv": [sys.executable, "-c", show, *texts]})
    assert isinstance(outcome, Done)
    arrived = outcome.value["stdout"].split("|")  # type: ignore[index]
    assert [bytes.fromhex(one).decode() for one in arrived] == texts
    names = [f"s{number}" for number in range(len(texts))]
    refused = 0
    accepted: dict[str, str] = {}
    one = CmdExecHandler(commands={"go": Command("/bin/true", ["{text}"], {"text": Text()})})
    for name, text in zip(names, texts, strict=True):
        if any(mark in text for mark in "\n\r") or text.startswith("-"):
            outcome = await harness.run(one, {"command": "go", "args": {"text": text}})
            assert isinstance(outcome, Dead), text
            refused += 1
        else:
            accepted[name] = text
    assert refused > 10
    command = Command(
        sys.executable,
        ["-c", show, *(f"{{{name}}}" for name in accepted)],
        {name: Text() for name in accepted},
    )
    outcome = await harness.run(
        CmdExecHandler(commands={"go": command}), {"command": "go", "args": accepted}
    )
    assert isinstance(outcome, Done)
    arrived = outcome.value["stdout"].split("|")  # type: ignore[index]
    assert [bytes.fromhex(one).decode() for one in arrived] == list(accepted.values())
