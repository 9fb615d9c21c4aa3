"""Every test that docs/gateway.md names exists."""

import re
from pathlib import Path

NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_named_test_exists(project_root: Path) -> None:
    page = (project_root / "docs" / "gateway.md").read_text(encoding="utf-8")
    named = NAMED.findall(page)
    assert named
    missing = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (project_root / path).read_text(encoding="utf-8")
    ]
    assert missing == []
