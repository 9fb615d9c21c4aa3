"""Built-in handlers: register one and enqueue jobs of its kind.

``CmdExecHandler`` runs one command per job, ``WorkerPoolHandler`` sends jobs to warm programs in
any language, ``NoopEcho`` is for demos and tests. They use only core, kit and the handler context.
"""

from .cmd_exec import CMD_EXEC_KIND, CmdExecHandler, CmdLimits
from .cmd_exec_commands import Choice, Command, Integer, Number, PathIn, Text
from .cmd_exec_payload import CmdExecPayload
from .noop_echo import NOOP_ECHO_KIND, NoopEcho
from .worker_pool import WorkerPoolHandler
from .worker_pool_config import WORKER_POOL_KIND, WorkerPoolConfig

__all__ = [
    "CMD_EXEC_KIND",
    "NOOP_ECHO_KIND",
    "WORKER_POOL_KIND",
    "Choice",
    "CmdExecHandler",
    "CmdExecPayload",
    "CmdLimits",
    "Command",
    "Integer",
    "NoopEcho",
    "Number",
    "PathIn",
    "Text",
    "WorkerPoolConfig",
    "WorkerPoolHandler",
]
