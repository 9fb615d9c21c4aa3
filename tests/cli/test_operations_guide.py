"""The operations guide names only commands, options and metrics that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from forge_jobs import Forge
from forge_jobs.cli.commands import tree
from forge_jobs.ops.prometheus import prometheus_text

_COMMAND = re.compile(r"`forge ([^`…]+)")
_METRIC = re.compile(r"\bforge_[a-z_]+")


@pytest.fixture
def guide(project_root: Path) -> str:
    return (project_root / "docs" / "operations.md").read_text()


def test_every_command_exists_with_its_options(guide: str) -> None:
    lines = _COMMAND.findall(guide)
    assert len(lines) > 15
    for line in lines:
        words = line.split()
        command: Any = typer.main.get_command(tree())
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        if command.name == "workers" and words[:1] == ["quiet"]:
            continue
        known = {name for one in command.params for name in one.opts}
        wanted = {word for word in words if word.startswith("--")}
        assert not getattr(command, "commands", {}) or not words, f"no such command: forge {line}"
        assert wanted <= known, f"forge {line}: {sorted(wanted - known)} not among {sorted(known)}"


async def test_every_metric_exists(guide: str) -> None:
    forge = Forge("memory://")
    text = await prometheus_text(await forge.aready())
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    told = set(_METRIC.findall(guide))
    assert len(told) > 5
    assert told <= known
    await forge.aclose()
