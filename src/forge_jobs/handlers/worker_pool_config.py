"""``WorkerPoolConfig``: the options of a pool of worker programs."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypedDict

from forge_jobs.core.errors import BadOption
from forge_jobs.kit.children.guard import CommandSpec

WORKER_POOL_KIND: Final = "worker_pool"
_UMASK: Final = 0o022


class PoolOptions(TypedDict, total=False):
    """The fields of WorkerPoolConfig, as ``WorkerPoolHandler`` takes them by name."""

    argv: Sequence[str]
    kind: str
    env: Mapping[str, str]
    inherit_env: bool
    cwd: str | None
    size: int
    timeout_secs: float
    handshake: bool
    ready_secs: float
    line_limit: int
    max_jobs: int
    max_memory_mb: int | None
    grace_secs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPoolConfig:
    """``argv`` starts one child; a worker process has at most ``size`` children. Best ``size`` is
    the number of slots of the queue.

    Children get the worker's environment plus ``env``, or ``env`` alone with ``inherit_env=False``.
    ``timeout_secs`` includes the wait for an idle child. A child must send its ready line within
    ``ready_secs``; with ``handshake=False`` it counts as ready at once. A child is replaced after
    ``max_jobs`` jobs, when it uses more than ``max_memory_mb`` after a job, and when it breaks the
    protocol. A line may have at most ``line_limit`` bytes. A child that is stopped gets SIGTERM,
    and SIGKILL after ``grace_secs``.

    >>> WorkerPoolConfig(argv=["node", "resize.js"], kind="resize", size=4).max_jobs
    1000
    """

    argv: Sequence[str]
    kind: str = WORKER_POOL_KIND
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    inherit_env: bool = True
    cwd: str | None = None
    size: int = 1
    timeout_secs: float = 600.0
    handshake: bool = True
    ready_secs: float = 30.0
    line_limit: int = 1 << 20
    max_jobs: int = 1_000
    max_memory_mb: int | None = None
    grace_secs: float = 2.0

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv or not self.argv[0]:
            raise BadOption("WorkerPoolConfig: argv must be a list that begins with the program")
        for name, value, minimum in (
            ("size", self.size, 1),
            ("timeout_secs", self.timeout_secs, 1),
            ("ready_secs", self.ready_secs, 1),
            ("line_limit", self.line_limit, 1_024),
            ("max_jobs", self.max_jobs, 1),
            ("max_memory_mb", self.max_memory_mb, 1),
            ("grace_secs", self.grace_secs, 0),
        ):
            if value is not None and value < minimum:
                raise BadOption(f"WorkerPoolConfig: {name}={value!r} must be at least {minimum}")

    def command_spec(self) -> CommandSpec:
        """The command that starts a child now. Raises OSError if the program does not exist."""
        env = {**os.environ, **self.env} if self.inherit_env else dict(self.env)
        path = shutil.which(self.argv[0], path=env.get("PATH", os.defpath))
        if path is None:
            raise FileNotFoundError(2, f"there is no program {self.argv[0]!r}")
        return CommandSpec(
            path=os.path.abspath(path),
            argv=tuple(self.argv),
            env=env,
            cwd=self.cwd or os.getcwd(),
            umask=_UMASK,
        )
