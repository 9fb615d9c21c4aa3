"""One command under a guard, from its start to its end: input given, output kept, nothing left."""

from .guard import CommandSpec, GuardReport, spawn_guarded
from .process import ChildProcess
from .streams import HeadTailStream


class CommandProcess(ChildProcess):
    """A command that runs once. ``stdout`` and ``stderr`` keep the ends of what it writes."""

    stdout: HeadTailStream
    stderr: HeadTailStream

    @classmethod
    async def start(
        cls, plan: CommandSpec, *, stdin: bytes | None, keep_bytes: int
    ) -> "CommandProcess":
        """Start it and hand it its input. OSError when it cannot be started."""
        made = spawn_guarded(plan, stdin=stdin is not None)
        report = GuardReport()
        command = cls(made.process, made.control, guard=report)
        command.stdout, command.stderr = HeadTailStream(keep_bytes), HeadTailStream(keep_bytes)
        await command.connect(
            [(made.report, report), (made.stdout, command.stdout), (made.stderr, command.stderr)],
            made.stdin,
        )
        if command._writer is not None:
            # Written as fast as the command reads; closed when all of it is through.
            command._writer.write(stdin or b"")
            command._writer.close()
        return command
