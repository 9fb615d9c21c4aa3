"""docs/security.md: its table of roles and the tests it names are true."""

import re
from pathlib import Path

import pytest

from forge_jobs.web import Role
from forge_jobs.web.api.all import ROUTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.word)
def test_the_table_of_roles_names_every_route_that_writes(role: Role) -> None:
    [row] = re.findall(rf"^\| {role.word} \| [^|]+ \|(.*)\|$", PAGE, re.MULTILINE)
    named = set(re.findall(r"`([A-Z]+ /[^`]*)`", row))
    actual = {
        f"{route.method} {route.path}" for route in ROUTES if route.writes and route.role is role
    }
    assert named == actual


@pytest.mark.parametrize(("path", "test"), NAMED, ids=lambda value: str(value)[-60:])
def test_each_named_test_exists(path: str, test: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), f"{path}::{test}"


def test_every_attack_has_a_test() -> None:
    rows = PAGE.partition("## What was tried")[2].partition("\n## ")[0]
    attacks = [line for line in rows.splitlines() if line.startswith("| ")][1:]
    assert len(attacks) >= 20
    assert [line for line in attacks if "`tests/" not in line] == []
