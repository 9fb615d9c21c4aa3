"""A wall clock that is wrong for chosen processes, and that steps while they run.

On Linux with a C compiler a small library stands between the process and the C library, so that
everything in the process sees the wrong time: Python, SQLite and other C code. Elsewhere a
``sitecustomize`` module replaces what Python itself reads, which is all that Forge Jobs reads.
Elapsed time stays true in both cases, as on a machine whose clock an administrator sets.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PRELOAD = Path(__file__).parent / "preload"
HAS_COMPILER = sys.platform == "linux" and shutil.which("cc") is not None


class WrongClock:
    """The clock of every process that was started with ``environment``."""

    def __init__(self, folder: Path, *, compiled: bool = HAS_COMPILER) -> None:
        self._file = folder / "wrong-clock"
        self.environment: Mapping[str, str] = {"WRONG_CLOCK": str(self._file)}
        if compiled:
            library = folder / "wrong_clock.so"
            words = ["cc", "-shared", "-fPIC", "-O1", PRELOAD / "wrong_clock.c", "-o", library]
            subprocess.run([*words, "-ldl"], check=True)
            self.environment = {**self.environment, "LD_PRELOAD": str(library)}
        else:
            self.environment = {**self.environment, "PYTHONPATH": str(PRELOAD)}
        self.set(0)

    def set(self, ahead_s: int) -> None:
        """Set the clock that far ahead of the correct time; behind it if negative."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{ahead_s}\n")
        fresh.rename(self._file)
