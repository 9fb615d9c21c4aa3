"""The demo's state outside its database, in a JSON file of its folder."""

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "demo.json"


class SavedState(msgspec.Struct):
    """``ahead_s``: the sum of the leaps so far. ``jobs``: the job of the last message, by bot."""

    ahead_s: float = 0.0
    jobs: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def read_state(folder: Path) -> SavedState:
    """The state of an earlier demo; empty if there is none or it cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=SavedState)
    except (OSError, msgspec.MsgspecError):
        return SavedState()


def write_state(folder: Path, state: SavedState) -> None:
    """Write the state atomically: the demo may be killed at any moment."""
    temporary = folder / f"{_FILE}.new"
    temporary.write_bytes(msgspec.json.encode(state))
    temporary.replace(folder / _FILE)
