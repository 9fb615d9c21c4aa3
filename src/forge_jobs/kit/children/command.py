"""One command under a guard, from its start to its end: input given, output kept, nothing left."""

from .guard import GuardPlan, GuardReport, spawn_guarded
from .process import ChildProcess
from .streams import KeptStream


class CommandProcess(ChildProcess):
    """A command that runs once. ``stdout`` and ``stderr`` keep the ends of what it writes."""

    stdout: KeptStream
    stderr: KeptStream

    @classmethod
    async def start(
        cls, plan: GuardPlan, *, stdin: bytes | None, keep_bytes: int
    ) -> "CommandProcess":
        """Start it and hand it its input. OSError when it cannot be started."""
        made = spawn_guarded(plan, stdin=stdin is not None)
        report = GuardReport()
        command = cls(made.process, made.control, guard=report)
        command.stdout, command.stderr = KeptStream(keep_bytes), KeptStream(keep_bytes)
        await command.connect(
            [(made.report, report), (made.stdout, command.stdout), (made.stderr, command.stderr)],
            made.stdin,
        )
        if command._writer is not None:
            # Written as fast as the command reads; closed when all of it is through.
            command._writer.write(stdin or b"")
            command._writer.close()
        return command
