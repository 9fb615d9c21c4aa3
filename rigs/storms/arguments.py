"""The command line arguments of a storm: its seed, its size, and whether to keep histories."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rigs.storms.checks import CheckReport

T = TypeVar("T")


@dataclass(frozen=True)
class StormArguments:
    """``given`` are the options of the command line; None if not given."""

    seed: int
    quick: bool = False
    keep: bool = False
    given: dict[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, whole: T, quick: T) -> T:
        """The options of a storm (a dataclass), overridden by the given ones."""
        base: Any = quick if self.quick else whole
        known = base.__dataclass_fields__
        chosen = {
            name: value
            for name, value in {**self.given, "seed": self.seed}.items()
            if value is not None and name in known
        }
        return replace(base, **chosen)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for histories; it is kept with ``--keep`` and after an error."""
        path = Path(tempfile.mkdtemp(prefix="forge-storm-"))
        path.chmod(0o755)
        try:
            yield path
        except BaseException:
            print(f"Histories: {path}")
            raise
        if self.keep:
            print(f"Histories: {path}")
        else:
            shutil.rmtree(path)


def print_report(report: CheckReport) -> bool:
    """Print figures and findings; True if every check passed."""
    for name, figure in report.figures.items():
        print(f"  {name:<28} {figure}")
    for name, found in report.findings.items():
        print(f"  {name:<28} {len(found)}")
        for finding in found[:10]:
            print(f"      {finding}")
    return report.clean
