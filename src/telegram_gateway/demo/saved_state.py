"""What a demo that is started again in its folder has to know and its database does not."""

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "demo.json"


class SavedState(msgspec.Struct):
    """``ahead_s`` is how far time has leapt; ``jobs`` are the last messages, by bot."""

    ahead_s: float = 0.0
    jobs: dict[str, str] = msgspec.field(default_factory=dict[str, str])


def read_state(folder: Path) -> SavedState:
    """Those of the demo before; empty ones for the first, or if they cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=SavedState)
    except (OSError, msgspec.MsgspecError):
        return SavedState()


def write_state(folder: Path, notes: SavedState) -> None:
    """Whole or not at all: a demo may be ended at any moment."""
    fresh = folder / f"{_FILE}.new"
    fresh.write_bytes(msgspec.json.encode(notes))
    fresh.replace(folder / _FILE)
