"""``cmd_exec``: one command per job, without a shell, under a guard that leaves nothing behind."""

import asyncio
import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Snooze, Throttled
from forge_jobs.engine.running.context import Context
from forge_jobs.kit.children.command import CommandProcess
from forge_jobs.kit.children.guard import CommandSpec
from forge_jobs.kit.children.process import ChildExit
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

from .cmd_exec_binary import Binaries
from .cmd_exec_commands import Command, inside
from .cmd_exec_output import last_words, log_lines, result
from .cmd_exec_payload import CmdExecPayload, Refusal, read_payload

CMD_EXEC_KIND: Final = "cmd_exec"
KEEP_BYTES: Final = 256 << 10
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_NEVER_RUNS: Final = (errno.E2BIG, errno.EINVAL, errno.ENOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CmdLimits:
    """What the system enforces for each process of a command; None: no limit of ours."""

    cpu_s: int | None = None
    memory_mb: int | None = None
    file_mb: int | None = None
    open_files: int | None = None

    def numbers(self) -> dict[int, int]:
        """By the numbers of the ``resource`` module."""
        wanted = {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_AS: None if self.memory_mb is None else self.memory_mb << 20,
            resource.RLIMIT_FSIZE: None if self.file_mb is None else self.file_mb << 20,
            resource.RLIMIT_NOFILE: self.open_files,
        }
        return {number: most for number, most in wanted.items() if most is not None}


@dataclass(frozen=True, slots=True)
class _Order:
    """A payload that was checked: what exactly to run."""

    path: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None


class CmdExecHandler:
    """Runs commands for jobs of kind ``cmd_exec``.

    ``commands`` names what may be run. ``any_argv=True`` instead lets payloads name any program:
    whoever may enqueue may then do whatever the worker's user may; ``cwd_root`` is required with it
    and is where a payload's ``cwd`` must lie. ``env`` is added to the environment of every command,
    which is otherwise PATH, LANG, TZ and a fresh HOME and TMPDIR. ``exit_codes`` maps codes to
    outcomes: ``{75: Throttled("1m"), 65: Dead("bad input"), 3: Done()}``.
    """

    kind: str = CMD_EXEC_KIND
    # A command cannot take the worker down: a suspect of its kind needs no process of its own.
    apart: bool = True

    def __init__(
        self,
        *,
        commands: Mapping[str, Command] | None = None,
        any_argv: bool = False,
        cwd_root: str | None = None,
        env: Mapping[str, str] | None = None,
        exit_codes: Mapping[int, JobOutcome] | None = None,
        limits: CmdLimits | None = None,
        keep_bytes: int = KEEP_BYTES,
        grace_s: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if any_argv == bool(commands):
            raise BadOption(
                "CmdExecHandler: say what may be run: commands={...}, or any_argv=True and cwd_root"
            )
        if any_argv and cwd_root is None:
            raise BadOption("CmdExecHandler(any_argv=True) needs cwd_root=, the folder of its jobs")
        if keep_bytes < 2:
            raise BadOption("CmdExecHandler: keep_bytes must be at least 2")
        self._commands = dict(commands or {})
        self._cwd_root = cwd_root
        self._env = dict(env or {})
        self._exit_codes = dict(exit_codes or {})
        self._limits = (limits or CmdLimits()).numbers()
        self._keep_bytes = keep_bytes
        self._grace_s = grace_s
        self._clock = clock
        self._binaries = Binaries()
        # Two streams, each byte up to six as JSON, and the rest of the result.
        self.result_limit = 12 * keep_bytes + 4_096

    async def run(self, ctx: Context, payload: Any) -> JobOutcome:
        """One attempt: one command."""
        try:
            asked = read_payload(payload)
            order = self._order(asked)
        except Refusal as refusal:
            return Dead(f"{CMD_EXEC_KIND}: {refusal}")
        except OSError as error:
            return Failed(f"{CMD_EXEC_KIND}: the command is not there: {error.strerror}")
        return await self._run(ctx, asked, order)

    # ------------------------------------------------------------------ what to run

    def _order(self, asked: CmdExecPayload) -> _Order:
        if asked.command is not None:
            return self._named(asked, asked.command)
        if self._commands:
            raise Refusal(f"`argv` is not allowed here; `command` may be: {self._known()}")
        argv = tuple(asked.argv or ("",))
        env = {**self._env, **asked.env}
        if os.sep in argv[0] and not os.path.isabs(argv[0]):
            raise Refusal("`argv` must begin with a plain name or an absolute path")
        path = shutil.which(argv[0], path=env.get("PATH", _PATH))
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _Order(path, argv, env, self._folder(asked.cwd))

    def _named(self, asked: CmdExecPayload, name: str) -> _Order:
        command = self._commands.get(name)
        if command is None:
            raise Refusal(f"`command` is none of those that may be run: {self._known()}")
        extra = [variable for variable in asked.env if variable not in command.payload_env]
        if extra:
            raise Refusal("`env` sets a variable that the command does not declare in payload_env")
        if command.cwd is not None and asked.cwd is not None:
            raise Refusal("`cwd` is fixed for this command")
        argv = tuple(command.argv(asked.args))
        path = self._binaries.checked(command.path, command.sha256)
        env = {**self._env, **command.env, **asked.env}
        return _Order(path, argv, env, command.cwd or self._folder(asked.cwd))

    def _known(self) -> str:
        return ", ".join(self._commands) or "nothing by name"

    def _folder(self, cwd: str | None) -> str | None:
        if cwd is None:
            return None
        if self._cwd_root is None:
            raise Refusal("`cwd` is not allowed here: the handler has no cwd_root")
        try:
            return inside(self._cwd_root, cwd)
        except (Refusal, ValueError):
            raise Refusal("`cwd` must lie inside the handler's cwd_root") from None

    # ------------------------------------------------------------------ running it

    async def _run(self, ctx: Context, asked: CmdExecPayload, order: _Order) -> JobOutcome:
        began = self._clock.mono()
        scratch = tempfile.mkdtemp(prefix="forge-cmd-")
        fresh = {"PATH": _PATH, "LANG": "C.UTF-8", "TZ": "UTC", "HOME": scratch, "TMPDIR": scratch}
        plan = CommandSpec(
            path=order.path,
            argv=order.argv,
            env={**fresh, **order.env},
            cwd=order.cwd or scratch,
            scratch=scratch,
            limits=self._limits,
        )
        stdin = None if asked.stdin is None else asked.stdin.encode()
        try:
            command = await CommandProcess.start(plan, stdin=stdin, keep_bytes=self._keep_bytes)
        except OSError as error:
            _sweep(scratch)
            failure = Dead if error.errno in _NEVER_RUNS else Failed
            return failure(f"{CMD_EXEC_KIND}: the command cannot be started: {error.strerror}")
        except ValueError as error:
            _sweep(scratch)
            return Dead(f"{CMD_EXEC_KIND}: {error}")
        told = "ended"
        ended: ChildExit | None = None
        try:
            async with asyncio.timeout(asked.timeout_secs):
                ended = await command.wait()
            told = str(ended)
        except TimeoutError:
            told = f"timed out after {asked.timeout_secs:g} s"
            await command.terminate_shielded(self._grace_s)
        except asyncio.CancelledError:
            await command.terminate_shielded(self._grace_s)
            self._write_down(ctx, "stopped", command, began)
            raise
        finally:
            _sweep(scratch)
        outcome = Failed(told) if ended is None else self._judged(ended, command, began)
        if not isinstance(outcome, Done):
            self._write_down(ctx, told, command, began)
        return outcome

    def _judged(self, ended: ChildExit, command: CommandProcess, began: float) -> JobOutcome:
        chosen = self._exit_codes.get(ended.status, Done() if ended.status == 0 else Failed())
        how = f"exit {ended.status}" if ended.signal is None else f"killed by {ended}"
        words = last_words(command.stdout, command.stderr)
        message = f"{how}: {words}" if words else how
        match chosen:
            case Done():
                ran_s = self._clock.mono() - began
                return Done(result(ended, command.stdout, command.stderr, ran_s))
            case Dead():
                return Dead(message)
            case Throttled(retry_after_s=wait_s, scope=scope):
                return Throttled(wait_s, scope)
            case Snooze(delay_s=delay_s):
                return Snooze(delay_s)
            case _:
                return Failed(message)

    def _write_down(self, ctx: Context, told: str, command: CommandProcess, began: float) -> None:
        ran_s = self._clock.mono() - began
        for level, text in log_lines(told, command.stdout, command.stderr, ran_s):
            ctx.log.keep(level, text)


def _sweep(folder: str) -> None:
    # The guard removes it, unless somebody killed the guard.
    if os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
