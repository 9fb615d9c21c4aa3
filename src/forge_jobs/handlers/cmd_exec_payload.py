"""The payload of ``cmd_exec`` jobs and its validation. The payload is untrusted input."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

DEFAULT_TIMEOUT_S: Final = 600.0


class Refusal(Exception):
    """The payload can never be run. The text names the field and the rule, and never repeats values
    of the payload."""


class CmdExecPayload(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Either ``command`` with ``args`` for its slots, or ``argv`` where any command is allowed.

    ``env`` is added to the handler's variables. Without ``cwd`` the command runs in a fresh folder;
    without ``stdin`` it reads nothing.

    >>> payload = CmdExecPayload(command="resize", args={"source": "a.png", "target": "b.png"})
    >>> payload.timeout_secs
    600.0
    """

    command: str | None = None
    args: dict[str, str | int | float | bool] = {}
    argv: Sequence[str] | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None
    timeout_secs: Annotated[float, msgspec.Meta(ge=1)] = DEFAULT_TIMEOUT_S


def read_payload(payload: Any) -> CmdExecPayload:
    """Decode and validate a job's payload. Raises Refusal."""
    try:
        request = msgspec.convert(payload, CmdExecPayload)
    except msgspec.ValidationError as error:
        raise Refusal(f"the payload is wrong: {error}") from None
    if (request.command is None) == (request.argv is None):
        raise Refusal("the payload needs either `command` or `argv`")
    if request.argv is not None:
        if not request.argv or not request.argv[0]:
            raise Refusal("`argv` is empty: its first item names the program")
        if request.args:
            raise Refusal("`args` fills the slots of a `command`, not of `argv`")
    return request
