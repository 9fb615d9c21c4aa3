"""cmd_exec: allowed commands, the command's environment, captured output, exit codes."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forge_jobs import (
    CMD_EXEC_KIND,
    CmdExecHandler,
    CmdExecPayload,
    Dead,
    Done,
    Failed,
    Forge,
    Snooze,
    Throttled,
)
from forge_jobs.core.errors import BadOption
from forge_jobs.core.outcome import JobOutcome
from forge_jobs.handlers import Choice, CmdLimits, Command, Integer, Number, PathIn, Text
from tests.handlers.conftest import HandlerHarness, RecordedContext

SHELL = "/bin/sh"
PYTHON = sys.executable

pytestmark = pytest.mark.usefixtures("no_scratch_left")


def shell(script: str, **options: Any) -> CmdExecHandler:
    """A handler with one command, ``go``, that runs a fixed script."""
    return CmdExecHandler(commands={"go": Command(SHELL, ["-c", script])}, **options)


def python(code: str, **options: Any) -> CmdExecHandler:
    return CmdExecHandler(commands={"go": Command(PYTHON, ["-c", code])}, **options)


GO: dict[str, Any] = {"command": "go"}


async def done(
    harness: HandlerHarness, handler: CmdExecHandler, payload: Any = GO
) -> dict[str, Any]:
    outcome = await harness.run(handler, payload)
    assert isinstance(outcome, Done), outcome
    return outcome.value  # type: ignore[return-value]


async def refused(harness: HandlerHarness, handler: CmdExecHandler, payload: Any) -> str:
    outcome = await harness.run(handler, payload)
    assert isinstance(outcome, Dead), outcome
    return outcome.message


# --------------------------------------------------------------------------- the allow-list


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "say what may be run"),
        ({"commands": {}}, "say what may be run"),
        ({"any_argv": True}, "cwd_root"),
        ({"any_argv": True, "commands": {"go": Command(SHELL)}}, "say what may be run"),
    ],
)
def test_commands_or_any_argv_is_required(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        CmdExecHandler(**options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Command("sh"), "absolute"),
        (lambda: Command(SHELL, "-c true"), "list of arguments"),
        (lambda: Command(SHELL, ["{who}"]), "who"),
        (lambda: Command(SHELL, [], {"who": Text()}), "who"),
        (lambda: Command(SHELL, ["{who!r}"], {"who": Text()}), "written"),
        (lambda: Command(SHELL, ["{0.x}"], {"0.x": Text()}), "written"),
        (lambda: Command(SHELL, ["{"]), "no template"),
    ],
)
def test_an_invalid_command_is_refused_at_declaration(make: Any, words: str) -> None:
    with pytest.raises(BadOption, match=words):
        make()


async def test_only_declared_commands_and_slots_run(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    handler = CmdExecHandler(
        commands={
            "say": Command(
                "/bin/echo",
                ["{{{word}}}", "--size={width}x{height}", "{how}", "{share}", "{file}"],
                {
                    "word": Text(pattern="[a-z]+"),
                    "width": Integer(least=1, most=100),
                    "height": Integer(least=-5, default=7),
                    "how": Choice(["fast", "-slow"]),
                    "share": Number(most=1, default=0.5),
                    "file": PathIn(str(tmp_path)),
                },
            )
        }
    )
    args = {"word": "abc", "width": 3, "how": "-slow", "file": "a/../b.txt"}
    told = await done(harness, handler, {"command": "say", "args": args})
    assert told["stdout"] == f"{{abc}} --size=3x7 -slow 0.5 {tmp_path.resolve()}/b.txt\n"
    for wrong, words in [
        ({"word": "ab;c"}, "`args.word` must match"),
        ({"word": 3}, "`args.word` must be text"),
        ({"width": 101}, "`args.width` must lie between 1 and 100"),
        ({"width": True}, "`args.width` must be a whole number"),
        ({"width": "3"}, "`args.width` must be a whole number"),
        ({"how": "other"}, "`args.how` must be one of fast, -slow"),
        ({"share": 1.5}, "`args.share` must lie between 0 and 1"),
        ({"file": "../elsewhere"}, "`args.file` must lie inside"),
        ({"file": "/etc/passwd"}, "`args.file` must lie inside"),
        ({"nobody": "x"}, "it has: word, width, height, how, share, file"),
    ]:
        message = await refused(harness, handler, {"command": "say", "args": {**args, **wrong}})
        assert words in message
    missing = await refused(harness, handler, {"command": "say", "args": {}})
    assert "`args.word` is missing" in missing


async def test_symbolic_links_out_of_a_folder_are_refused(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    slots = {"file": PathIn(str(root))}
    handler = CmdExecHandler(
        commands={"cat": Command("/bin/cat", ["{file}"], slots)}, cwd_root=str(root)
    )
    message = await refused(harness, handler, {"command": "cat", "args": {"file": "out/passwd"}})
    assert "inside" in message
    message = await refused(
        harness, handler, {"command": "cat", "args": {"file": "a"}, "cwd": "out"}
    )
    assert "`cwd` must lie inside" in message


async def test_a_value_does_not_become_an_option(harness: HandlerHarness) -> None:
    slots = {"name": Text(), "free": Text(dash=True, default="x")}
    handler = CmdExecHandler(
        commands={"echo": Command("/bin/echo", ["{name}", "--free={name}", "{free}"], slots)}
    )
    asked = {"command": "echo", "args": {"name": "-rf"}}
    assert "`args.name` must not begin with a dash" in await refused(harness, handler, asked)
    asked = {"command": "echo", "args": {"name": "a-b", "free": "-n"}}
    assert (await done(harness, handler, asked))["stdout"] == "a-b --free=a-b -n\n"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (None, "Expected `object`"),
        ([], "Expected `object`"),
        ({}, "either `command` or `argv`"),
        ({"command": "go", "argv": ["go"]}, "either `command` or `argv`"),
        ({"command": 3}, "$.command"),
        ({"command": "rm"}, "none of those that may be run: go"),
        ({"argv": ["/bin/sh"]}, "`argv` is not allowed here"),
        ({"argv": []}, "`argv` is empty"),
        ({"argv": ["go", 3]}, "$.argv[1]"),
        ({"command": "go", "shell": True}, "unknown field `shell`"),
        ({"command": "go", "timeout_secs": 0}, "$.timeout_secs"),
        ({"command": "go", "env": {"A": 1}}, "$.env"),
        ({"command": "go", "env": {"LD_PRELOAD": "x"}}, "payload_env"),
        ({"command": "go", "cwd": "/"}, "no cwd_root"),
        ({"command": "go", "stdin": 3}, "$.stdin"),
    ],
)
async def test_A18_a_malformed_payload_is_dead(
    harness: HandlerHarness, payload: Any, words: str
) -> None:
    assert words in await refused(harness, shell("true"), payload)


async def test_a_refusal_does_not_repeat_the_payload(harness: HandlerHarness) -> None:
    handler = CmdExecHandler(
        commands={"go": Command("/bin/echo", ["{who}"], {"who": Text(pattern="[a-z]*")})}
    )
    for payload in ({"command": "S3CRET"}, {"command": "go", "args": {"who": "S3CRET"}}):
        assert "S3CRET" not in await refused(harness, handler, payload)


async def test_any_argv_runs_programs_by_name_or_full_path(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    handler = CmdExecHandler(any_argv=True, cwd_root=str(tmp_path))
    (tmp_path / "inner").mkdir()
    asked = CmdExecPayload(argv=["pwd"], cwd="inner")
    told = await done(harness, handler, msgspec.to_builtins(asked))
    assert told["stdout"] == f"{(tmp_path / 'inner').resolve()}\n"
    assert (await done(harness, handler, {"argv": ["/bin/echo", "a b"]}))["stdout"] == "a b\n"
    assert "plain name" in await refused(harness, handler, {"argv": ["./run"]})
    assert "cwd" in await refused(harness, handler, {"argv": ["pwd"], "cwd": "/"})
    assert "nothing by name" in await refused(harness, handler, {"command": "go"})
    outcome = await harness.run(handler, {"argv": ["no-such-program-anywhere"]})
    assert isinstance(outcome, Failed)
    assert "not there" in outcome.message


async def test_a_changed_or_writable_file_is_refused(
    harness: HandlerHarness, tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    digest = hashlib.sha256(tool.read_bytes()).hexdigest()
    pinned = CmdExecHandler(commands={"go": Command(str(tool), sha256=digest)})
    free = CmdExecHandler(commands={"go": Command(str(tool))})
    assert (await done(harness, pinned))["stdout"] == "mine\n"
    tool.write_text("#!/bin/sh\necho theirs\n")
    assert "SHA-256 differs" in await refused(harness, pinned, GO)
    assert (await done(harness, free))["stdout"] == "theirs\n"
    tool.chmod(0o757)
    assert "written by everybody" in await refused(harness, free, GO)
    tool.unlink()
    tool.mkdir()
    assert "not a regular file" in await refused(harness, free, GO)
    tool.rmdir()
    outcome = await harness.run(free, GO)
    assert isinstance(outcome, Failed), "it may come back with the next deployment"
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "open" / "tool").chmod(0o755)
    tool.symlink_to(tmp_path / "open" / "tool")
    assert "folder" in await refused(harness, free, GO)


# --------------------------------------------------------------------------- what it sees

SHOW = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.umask(0)]))"


async def test_the_environment_holds_only_declared_variables(
    harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    command = Command("/usr/bin/env", env={"B": "2 $X"}, payload_env=["C"])
    handler = CmdExecHandler(commands={"go": command}, env={"A": "1", "LANG": "de_DE.UTF-8"})
    told = await done(harness, handler, {"command": "go", "env": {"C": "drei\nvier"}})
    seen = told["stdout"]
    scratch = next(line[5:] for line in seen.split("\n") if line.startswith("HOME="))
    expected = {
        "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=de_DE.UTF-8", "TZ=UTC", f"HOME={scratch}",
        f"TMPDIR={scratch}", "A=1", "B=2 $X", "C=drei", "vier",
    }  # fmt: skip
    assert set(seen.rstrip("\n").split("\n")) == expected
    assert not os.path.exists(scratch)


async def test_it_starts_in_a_fresh_private_folder(harness: HandlerHarness) -> None:
    handler = shell("pwd; ls -A | wc -l; umask; touch file; ls -l file | cut -c1-10; mkdir -p a/b")
    first = (await done(harness, handler))["stdout"].split()
    second = (await done(harness, handler))["stdout"].split()
    assert first[1:] == ["0", "0077", "-rw-------"]
    assert first[0] != second[0]
    assert not os.path.exists(first[0])


async def test_it_has_three_descriptors_and_default_signals(harness: HandlerHarness) -> None:
    descriptors = await done(
        harness, shell("ls /proc/self/fd /dev/fd 2>/dev/null | sort -u | xargs")
    )
    words = [word for word in descriptors["stdout"].split() if word.isdigit()]
    # The fourth is the folder that is being listed.
    assert words in (["0", "1", "2", "3"], ["0", "1", "2"])
    code = (
        "import signal; print([s.name for s in signal.Signals "
        "if signal.getsignal(s) is signal.SIG_IGN and s.name not in ('SIGPIPE', 'SIGXFSZ')], "
        "signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    assert (await done(harness, python(code)))["stdout"] == "[] set()\n"
    # Python itself ignores SIGPIPE; a shell shows what it was given.
    assert (await done(harness, shell("yes | head -1; trap")))["stdout"] == "y\n"


async def test_large_input_and_output_do_not_deadlock(harness: HandlerHarness) -> None:
    text = "zeile ✓\n" * 60_000
    told = await done(harness, shell("cat"), {"command": "go", "stdin": text})
    assert told["stdout_bytes"] == len(text.encode())
    assert (await done(harness, shell("cat")))["stdout"] == "", "no stdin is an empty one"
    ignored = await done(harness, shell("echo unread"), {"command": "go", "stdin": text})
    assert ignored["stdout"] == "unread\n"


# --------------------------------------------------------------------------- what is kept


async def test_A18_large_output_keeps_head_and_tail_and_counts_the_rest(
    harness: HandlerHarness,
) -> None:
    code = (
        "import sys; w = sys.stdout.buffer.write; w(b'<' + 'ä'.encode() * 400_000 + b'>'); "
        "sys.stdout.flush(); print('e' * 300_000, file=sys.stderr)"
    )
    told = await done(harness, python(code))
    assert (told["stdout_bytes"], told["stderr_bytes"]) == (800_002, 300_001)
    kept = told["stdout"]
    assert kept.startswith("<ää")
    assert kept.endswith("ää>")
    assert "\N{REPLACEMENT CHARACTER}" not in kept
    assert told["stdout_left_out"] == 800_002 - (256 << 10)
    assert f"… {told['stdout_left_out']:,} bytes left out …" in kept
    assert told["stderr_left_out"] == 300_001 - (256 << 10)


async def test_binary_output_becomes_storable_text(harness: HandlerHarness) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1024)"
    told = await done(harness, python(code))
    assert told["stdout_left_out"] == 0
    assert "\0" not in told["stdout"]
    handler = python(code)
    async with Forge("memory://") as forge:
        forge.register(handler, queue="shell")
        job = await forge.aenqueue(CMD_EXEC_KIND, CmdExecPayload(command="go"))
        assert (await forge.drain()).done == 1
        assert (await job.aresult(timeout=60))["stdout_bytes"] == 256 << 10


async def test_a_small_keep_bytes_keeps_less(harness: HandlerHarness) -> None:
    told = await done(harness, shell("printf 0123456789", keep_bytes=4))
    assert told["stdout"] == "01\n… 6 bytes left out …\n89"
    assert (await done(harness, shell("printf 0123", keep_bytes=4)))["stdout"] == "0123"


async def test_a_failure_has_the_output_tail_and_the_log_all_of_it(harness: HandlerHarness) -> None:
    recorded = RecordedContext()
    handler = shell("echo first; seq 20000; seq 3000 >&2; echo last words >&2; exit 3")
    outcome = await harness.run(handler, GO, recorded)
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("exit 3: …")
    assert outcome.message.endswith("2999\n3000\nlast words")
    assert len(outcome.message) < 1_100
    assert recorded.lines[0].message.startswith("exit code 3 after ")
    assert "stdout 108,900 bytes, stderr 13,904 bytes" in recorded.lines[0].message
    stdout = [line.message for line in recorded.lines if line.message.startswith("stdout: ")]
    assert stdout[0].startswith("stdout: first\n1\n2\n")
    assert "".join(line[8:] + "\n" for line in stdout).count("\n") == 20_001
    assert len(recorded.lines) < 100


# --------------------------------------------------------------------------- what codes mean


@pytest.mark.parametrize(
    ("script", "expected", "message"),
    [
        ("exit 0", Done, None),
        ("exit 3", Done, None),
        ("echo bad >&2; exit 65", Dead, "exit 65: bad"),
        ("exit 75", Throttled, None),
        ("exit 76", Snooze, None),
        ("echo out; exit 77", Failed, "exit 77: out"),
        ("exit 1", Failed, "exit 1"),
        ("kill -9 $$", Failed, "killed by signal 9 (SIGKILL)"),
    ],
)
async def test_exit_codes_map_to_outcomes(
    harness: HandlerHarness, script: str, expected: type[JobOutcome], message: str | None
) -> None:
    handler = shell(
        script,
        exit_codes={3: Done(), 65: Dead(), 75: Throttled("90s", "api"), 76: Snooze("5m")},
    )
    outcome = await harness.run(handler, GO)
    assert type(outcome) is expected
    if message is not None:
        assert str(outcome) == message
    if isinstance(outcome, Throttled):
        assert (outcome.retry_after_s, outcome.scope) == (90, "api")
    if isinstance(outcome, Snooze):
        assert outcome.delay_s == 300
    if isinstance(outcome, Done):
        assert outcome.value["exit_code"] in (0, 3)  # type: ignore[index]


async def test_commands_that_cannot_be_started(harness: HandlerHarness, tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    outcome = await harness.run(CmdExecHandler(commands={"go": Command(str(script))}), GO)
    assert isinstance(outcome, Failed)
    assert "cannot be started: No such file" in outcome.message
    gone = Command(SHELL, cwd=str(tmp_path / "gone"))
    outcome = await harness.run(CmdExecHandler(commands={"go": gone}), GO)
    assert isinstance(outcome, Failed)
    assert "(cwd)" in outcome.message
    handler = CmdExecHandler(any_argv=True, cwd_root=str(tmp_path))
    outcome = await harness.run(handler, {"argv": ["/bin/echo", "x" * 300_000]})
    assert isinstance(outcome, Dead)
    assert "Argument list too long" in outcome.message


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (CmdLimits(cpu_s=1), "while True: pass"),
        (CmdLimits(memory_mb=200), "x = bytearray(400 << 20)"),
        (CmdLimits(file_mb=1), "open('f', 'wb').write(bytes(2 << 20))"),
        (CmdLimits(open_files=10), "x = [open('/dev/null') for _ in range(20)]"),
    ],
)
async def test_resource_limits_are_enforced(
    harness: HandlerHarness, limits: CmdLimits, code: str
) -> None:
    outcome = await harness.run(python(code, limits=limits), GO)
    assert isinstance(outcome, Failed)
    assert any(
        words in outcome.message
        for words in ("SIGXCPU", "SIGKILL", "MemoryError", "File too large", "Too many open files")
    )


async def test_output_and_exit_code_are_stored_with_the_job() -> None:
    async with Forge("memory://") as forge:
        forge.register(
            CmdExecHandler(
                commands={
                    "good": Command(SHELL, ["-c", "echo fine"]),
                    "bad": Command(SHELL, ["-c", "echo began; echo broken >&2; exit 4"]),
                }
            ),
            queue="shell",
        )
        good = await forge.aenqueue(CMD_EXEC_KIND, CmdExecPayload(command="good"))
        bad = await forge.aenqueue("cmd_exec", {"command": "bad"}, max_attempts=1)
        report = await forge.drain()
        assert (report.done, report.dead) == (1, 1)
        told = await good.aresult(timeout=60)
        assert (told["exit_code"], told["stdout"]) == (0, "fine\n")
        store = await forge.aready()
        record = await store.jobs.get(bad.id)
        assert record is not None
        assert record.last_error == "exit 4: broken"
        log = [line.message for line in await store.metrics.logs(bad.id)]
        assert log[0].startswith("exit code 4 after ")
        assert log[1:] == ["stdout: began", "stderr: broken"]
        assert json.loads(record.payload) == {"command": "bad"}
