"""``CmdExecHandler``: runs one command per job, without a shell, under a guard process that kills
all its descendants."""

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
from forge_jobs.kit.traceback_text import output_text

from .cmd_exec_binary import Binaries
from .cmd_exec_commands import Command, inside
from .cmd_exec_output import as_text, log_lines, output_tail, result
from .cmd_exec_payload import CmdExecPayload, Refusal, read_payload

CMD_EXEC_KIND: Final = "cmd_exec"
KEEP_BYTES: Final = 256 << 10
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_PERMANENT_ERRORS: Final = (errno.E2BIG, errno.EINVAL, errno.ENOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CmdLimits:
    """Resource limits that the system enforces for each process of a command. None: no limit."""

    cpu_s: int | None = None
    memory_mb: int | None = None
    file_mb: int | None = None
    open_files: int | None = None

    def rlimits(self) -> dict[int, int]:
        """The limits by the ``RLIMIT_…`` numbers of the ``resource`` module."""
        limits = {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_AS: None if self.memory_mb is None else self.memory_mb << 20,
            resource.RLIMIT_FSIZE: None if self.file_mb is None else self.file_mb << 20,
            resource.RLIMIT_NOFILE: self.open_files,
        }
        return {number: value for number, value in limits.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _ResolvedCommand:
    """The command of a validated payload."""

    path: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None


class CmdExecHandler:
    """Runs commands for jobs of kind ``cmd_exec``.

    ``commands`` declares what may be run. With ``any_argv=True`` payloads may name any program
    instead: whoever can enqueue can then do whatever the worker's user can. It requires
    ``cwd_root``, the folder in which a payload's ``cwd`` must lie. ``env`` is added to the
    environment of every command, which is otherwise PATH, LANG, TZ and a fresh HOME and TMPDIR.
    ``exit_codes`` maps exit codes to outcomes:
    ``{75: Throttled("1m"), 65: Dead("bad input"), 3: Done()}``.

    >>> resize = ["convert", "{source}", "-resize", "200x200", "{target}"]
    >>> forge.register(CmdExecHandler(commands={"resize": resize}), queue="images")
    """

    kind: str = CMD_EXEC_KIND
    # A command cannot crash the worker, so a job that is suspected of it needs no isolated process.
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
        self._limits = (limits or CmdLimits()).rlimits()
        self._keep_bytes = keep_bytes
        self._grace_s = grace_s
        self._clock = clock
        self._binaries = Binaries()
        # Two streams, at most six JSON characters per byte, plus the other fields of the result.
        self.result_limit = 12 * keep_bytes + 4_096

    async def run(self, ctx: Context, payload: Any) -> JobOutcome:
        """Run one attempt: one command."""
        try:
            request = read_payload(payload)
            resolved = self._resolve(request)
        except Refusal as refusal:
            return Dead(f"{CMD_EXEC_KIND}: {refusal}")
        except OSError as error:
            return Failed(f"{CMD_EXEC_KIND}: the command is not there: {error.strerror}")
        return await self._run(ctx, request, resolved)

    # ------------------------------------------------------------------ resolving the command

    def _resolve(self, request: CmdExecPayload) -> _ResolvedCommand:
        if request.command is not None:
            return self._resolve_declared(request, request.command)
        if self._commands:
            raise Refusal(f"`argv` is not allowed here; `command` may be: {self._known()}")
        argv = tuple(request.argv or ("",))
        env = {**self._env, **request.env}
        if os.sep in argv[0] and not os.path.isabs(argv[0]):
            raise Refusal("`argv` must begin with a plain name or an absolute path")
        path = shutil.which(argv[0], path=env.get("PATH", _PATH))
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _ResolvedCommand(path, argv, env, self._folder(request.cwd))

    def _resolve_declared(self, request: CmdExecPayload, name: str) -> _ResolvedCommand:
        command = self._commands.get(name)
        if command is None:
            raise Refusal(f"`command` is none of those that may be run: {self._known()}")
        extra = [variable for variable in request.env if variable not in command.payload_env]
        if extra:
            raise Refusal("`env` sets a variable that the command does not declare in payload_env")
        if command.cwd is not None and request.cwd is not None:
            raise Refusal("`cwd` is fixed for this command")
        argv = tuple(command.argv(request.args))
        path = self._binaries.checked(command.path, command.sha256)
        env = {**self._env, **command.env, **request.env}
        return _ResolvedCommand(path, argv, env, command.cwd or self._folder(request.cwd))

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

    # ------------------------------------------------------------------ running the command

    async def _run(
        self, ctx: Context, request: CmdExecPayload, resolved: _ResolvedCommand
    ) -> JobOutcome:
        started = self._clock.mono()
        scratch = tempfile.mkdtemp(prefix="forge-cmd-")
        base = {"PATH": _PATH, "LANG": "C.UTF-8", "TZ": "UTC", "HOME": scratch, "TMPDIR": scratch}
        spec = CommandSpec(
            path=resolved.path,
            argv=resolved.argv,
            env={**base, **resolved.env},
            cwd=resolved.cwd or scratch,
            scratch=scratch,
            limits=self._limits,
        )
        stdin = None if request.stdin is None else request.stdin.encode()
        try:
            command = await CommandProcess.start(spec, stdin=stdin, keep_bytes=self._keep_bytes)
        except OSError as error:
            _remove(scratch)
            failure = Dead if error.errno in _PERMANENT_ERRORS else Failed
            return failure(f"{CMD_EXEC_KIND}: the command cannot be started: {error.strerror}")
        except ValueError as error:
            _remove(scratch)
            return Dead(f"{CMD_EXEC_KIND}: {error}")
        how = "ended"
        ended: ChildExit | None = None
        try:
            async with asyncio.timeout(request.timeout_secs):
                ended = await command.wait()
            how = str(ended)
        except TimeoutError:
            how = f"timed out after {request.timeout_secs:g} s"
            await command.terminate_shielded(self._grace_s)
        except asyncio.CancelledError:
            await command.terminate_shielded(self._grace_s)
            self._log_output(ctx, "stopped", command, started)
            raise
        finally:
            _remove(scratch)
        outcome = Failed(how) if ended is None else self._outcome(ended, command, started)
        if not isinstance(outcome, Done):
            outcome.traceback = output_text(as_text(command.stderr))
            self._log_output(ctx, how, command, started)
        return outcome

    def _outcome(self, ended: ChildExit, command: CommandProcess, started: float) -> JobOutcome:
        mapped = self._exit_codes.get(ended.status, Done() if ended.status == 0 else Failed())
        how = f"exit {ended.status}" if ended.signal is None else f"killed by {ended}"
        tail = output_tail(command.stdout, command.stderr)
        message = f"{how}: {tail}" if tail else how
        match mapped:
            case Done():
                ran_s = self._clock.mono() - started
                return Done(result(ended, command.stdout, command.stderr, ran_s))
            case Dead():
                return Dead(message)
            case Throttled(retry_after_s=wait_s, scope=scope):
                return Throttled(wait_s, scope)
            case Snooze(delay_s=delay_s):
                return Snooze(delay_s)
            case _:
                return Failed(message)

    def _log_output(self, ctx: Context, how: str, command: CommandProcess, started: float) -> None:
        ran_s = self._clock.mono() - started
        for level, text in log_lines(how, command.stdout, command.stderr, ran_s):
            ctx.log.keep(level, text)


def _remove(folder: str) -> None:
    # The guard removes the folder, unless the guard itself was killed.
    if os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
