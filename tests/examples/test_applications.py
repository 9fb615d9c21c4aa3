"""The applications of examples/: the demo of each prints what it shows, and its own tests pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.commands import EXAMPLES, PATIENCE_S, run

PRINTED = {
    "web_shop/web_shop.py": """\
mail about order 2: money back: no yacht left
mail about order 1: pen is on its way
pen sent
yacht refunded
""",
    "thumbnails/thumbnails.py": """\
dawn.small.ppm
noon.small.ppm
dead: notes.ppm: not a PPM picture
new jobs for unchanged pictures: 0
""",
    "mailed_report/mailed_report.py": """\
3 sales, 63.40 in all
1 mail in the outbox
""",
    "etl/etl.py": """\
failed: ValueError: could not convert string to float: 'broken'
{'ink': 400, 'pad': 225, 'pen': 300}
['list', 'load[2026-03-30-north.csv]', 'load[2026-03-30-south.csv]', 'totals'] in 1 attempts
""",
    "webhooks/webhooks.py": """\
evt_1 stored
evt_1 known already
evt_2 stored
evt_3 401 wrong signature
{'ada': 300}
""",
    "telegram_bot/reminder_bot.py": """\
write: /remind 10m tea
in 1s: tea
soon is no time: write 10m, 2h or 1d
tea
""",
    "number_crunching/primes.py": """\
primes: 1229
in slices: 669
endless: cancelled
""",
    "tenants/tenants.py": """\
small waited for large: False
large 20
small 2
""",
    "agent/agent.py": """\
waits for a person
You fly at nine.
paid for: model search model model book model
stored: model tool model#2 wait:approve tool#2 model#3
""",
    "newsletter/newsletter.py": """\
mails: 200
done 199
dead 1
most to one reader: 1
""",
    "data_export/data_export.py": """\
second click is the same job: True
rows: 3000
stopped: cancelled - files: 1
""",
}
SCRAPED = {f"page {path}" for path in ("/", "/books", "/music", "/busy", "/books/1", "/books/2")}
# Every file of an application belongs to its demo; tests/examples/test_index.py reads this.
APPLICATIONS = sorted({name.split("/")[0] for name in PRINTED} | {"scraper"})


@pytest.mark.parametrize("name", PRINTED)
def test_the_demo_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    assert run(name, tmp_path).out == PRINTED[name]


def test_the_scraper_fetches_every_page_once(tmp_path: Path) -> None:
    *pages, bound = run("scraper/scraper.py", tmp_path).lines
    assert sorted(pages) == sorted([*SCRAPED, "dead: not found"])
    assert bound == "at most two at once: True"


def test_the_tests_of_the_applications_pass(tmp_path: Path) -> None:
    """All in one process, from another folder, as a reader runs those of one application."""
    folders = [str(EXAMPLES / name) for name in APPLICATIONS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"^(\d+) passed", done.stdout, re.M)
    assert found is not None
    assert int(found[1]) >= 2 * len(APPLICATIONS)
    assert not list(tmp_path.iterdir()), "they need no file here"


@pytest.mark.parametrize("name", APPLICATIONS)
def test_an_application_has_a_page_that_names_its_commands(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert re.search(rf"^python examples/{name}/\w+\.py$", text, re.M)
    assert f"Tests: `pytest examples/{name}`." in text
    assert list((EXAMPLES / name).glob("test_*.py"))
