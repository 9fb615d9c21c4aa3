"""What somebody asked of a storm: its chance, its size, and whether its histories are kept."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rigs.storms.checks import Judgement

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """``given`` are the options of the command line, None where there was none."""

    seed: int
    quick: bool = False
    keep: bool = False
    given: dict[str, Any] = field(default_factory=dict[str, Any])

    def apply(self, whole: T, quick: T) -> T:
        """The options of a storm (a dataclass), with what was given in place of its own."""
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
        """A place for histories; it stays when asked for, and after an error."""
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


def report(judgement: Judgement) -> bool:
    """Print what was found; whether every promise was kept."""
    for name, figure in judgement.figures.items():
        print(f"  {name:<28} {figure}")
    for name, found in judgement.findings.items():
        print(f"  {name:<28} {len(found)}")
        for finding in found[:10]:
            print(f"      {finding}")
    return judgement.clean
