"""``CommandProcess``: runs one command under a guard, writes its input and captures its output."""

from .guard import CommandSpec, GuardReport, spawn_guarded
from .process import ChildProcess
from .streams import HeadTailStream


class CommandProcess(ChildProcess):
    """A command that runs once. ``stdout`` and ``stderr`` keep the head and tail of its output."""

    stdout: HeadTailStream
    stderr: HeadTailStream

    @classmethod
    async def start(
        cls, spec: CommandSpec, *, stdin: bytes | None, keep_bytes: int
    ) -> "CommandProcess":
        """Start the command and write its input. Raises OSError if it cannot be started."""
        started = spawn_guarded(spec, stdin=stdin is not None)
        report = GuardReport()
        command = cls(started.process, started.control, guard=report)
        command.stdout, command.stderr = HeadTailStream(keep_bytes), HeadTailStream(keep_bytes)
        await command.connect(
            [
                (started.report, report),
                (started.stdout, command.stdout),
                (started.stderr, command.stderr),
            ],
            started.stdin,
        )
        if command._writer is not None:
            # The transport writes as fast as the command reads, and then closes the pipe.
            command._writer.write(stdin or b"")
            command._writer.close()
        return command
