"""What a job of kind ``cmd_exec`` asks for, read from JSON without trust."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

DEFAULT_TIMEOUT_S: Final = 600.0


class Refusal(Exception):
    """The job can never be run as it stands. The text names the field and the rule, and never
    repeats what the payload holds."""


class CmdExecPayload(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Either ``command`` with ``args`` for its slots, or ``argv`` where any command is allowed.

    ``env`` is added to what the handler declares; ``cwd`` None is a fresh folder; ``stdin`` None is
    nothing to read.
    """

    command: str | None = None
    args: dict[str, str | int | float | bool] = {}
    argv: Sequence[str] | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None
    timeout_secs: Annotated[float, msgspec.Meta(ge=1)] = DEFAULT_TIMEOUT_S


def read_payload(payload: Any) -> CmdExecPayload:
    """The payload of a job, or Refusal."""
    try:
        read = msgspec.convert(payload, CmdExecPayload)
    except msgspec.ValidationError as error:
        raise Refusal(f"the payload is wrong: {error}") from None
    if (read.command is None) == (read.argv is None):
        raise Refusal("the payload needs either `command` or `argv`")
    if read.argv is not None:
        if not read.argv or not read.argv[0]:
            raise Refusal("`argv` is empty: its first item names the program")
        if read.args:
            raise Refusal("`args` fills the slots of a `command`, not of `argv`")
    return read
