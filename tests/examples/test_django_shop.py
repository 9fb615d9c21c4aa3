"""The Django project of the examples: its demo, its own tests, its checks."""

import os
import subprocess
import sys
from pathlib import Path

from tests.examples.commands import EXAMPLES, PATIENCE_S, run

SHOP = EXAMPLES / "django_shop"


def manage(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", SHOP / "manage.py", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_demo_prints_what_it_shows(tmp_path: Path) -> None:
    *lines, jobs = run("django_shop/demo.py", tmp_path).lines
    assert sorted(lines) == [
        "mail to ada about pen, attempt 2",
        "orders: ['pen for ada: paid']",
        "payment: SUCCESSFUL receipt over 5.00",
        "refused: no credit for yacht",
        "steps: ['charge']",
    ]
    assert jobs == "jobs of the order: ['shop.tasks.pay done', 'shop.tasks.send_mail done']"


def test_its_own_tests_and_checks_pass(tmp_path: Path) -> None:
    assert "Ran 3 tests" in manage(tmp_path, "test", "shop.tests")
    assert "no issues" in manage(tmp_path, "check")
