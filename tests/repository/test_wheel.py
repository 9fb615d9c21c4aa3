"""What a clone builds has the scripts of the pages in it, or there is nothing built.

Everything happens in a copy of the committed files: no node_modules, nothing fetched before. The
wheel is installed into an environment of its own, which has its dependencies from this one.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import threading
import time
import zipfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect

from tests.browser_start import chromium
from tests.examples.test_applications import APPLICATIONS, PRINTED
from tests.examples.test_tutorial import save_tutorial
from tests.repository.test_repository import committed_files
from tests.web.browser.window import open_window

PATIENCE_S = 120
VENDOR = "forge_jobs/web/static/vendor"
SCRIPTS = {f"{VENDOR}/{name}" for name in ("htmx.min.js", "idiomorph-ext.min.js")}
CHARTS = {f"{VENDOR}/{name}" for name in ("uPlot.iife.min.js", "uPlot.min.css")}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
PLAIN = ("-p", "no:cacheprovider")
DRAWN = """canvas => canvas.getContext("2d")
    .getImageData(0, 0, canvas.width, canvas.height).data.some(value => value > 0)"""


def clone(project_root: Path, folder: Path) -> Path:
    """A copy of what is under version control, as it is in the working tree."""
    for path in committed_files(project_root):
        place = folder / path.relative_to(project_root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    assert not (folder / "src" / VENDOR).exists()
    return folder


def plain_environment() -> dict[str, str]:
    """Without what would make another forge_jobs be found before the installed one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(
    *command: str | Path, path: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A command; ``path`` is the only folder where it finds programs."""
    return subprocess.run(
        command,
        cwd=cwd,
        env=plain_environment() | ({} if path is None else {"PATH": str(path)}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def build(source: Path, dist: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``pip wheel``, with the build tools of the test environment instead of downloaded ones."""
    offline = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", dist]
    return run(*PIP, "wheel", *offline, source, path=path)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as packed:
        return set(packed.namelist())


def environment(wheel: Path, folder: Path) -> Path:
    """The programs of a fresh virtual environment with that wheel."""
    assert run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    python = folder / "bin" / "python"
    done = run(*PIP, "--python", python, "install", "--no-index", "--no-deps", wheel)
    assert done.returncode == 0, done.stderr
    there = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # A plain line: the .pth files over there, such as that of the editable install, do not count.
    Path(there, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@contextmanager
def started(
    *command: str | Path, cwd: Path, until: str = r"http://127\.0\.0\.1:\d+"
) -> Generator[str]:
    """A command that serves; yields the first match of ``until`` in what it prints, then ends it
    as Ctrl-C does."""
    process = subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = ""
        while (found := re.search(until, printed)) is None:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        # What is printed later must not fill the pipe.
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        reader.join(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def charts_of(address: str) -> Generator[Page]:
    """The overview in a browser, with its charts drawn. Fails on an error in its console and on a
    response that is one."""
    refused: list[str] = []

    def record(response: Response) -> None:
        if response.status >= 400:
            refused.append(f"{response.status} {response.url}")

    with chromium() as browser, open_window(browser, address) as page:
        page.on("response", record)
        page.goto("/")
        for chart in ("flow", "waited", "ran"):
            canvas = page.locator(f"#plot-{chart} canvas")
            expect(canvas).to_be_visible()
            assert canvas.evaluate(DRAWN), chart
        assert page.evaluate("typeof htmx.process") == "function"
        page.wait_for_load_state("load")
        yield page
    assert refused == []


@pytest.fixture(scope="module")
def wheel(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    done = build(clone(project_root, folder / "source"), folder / "dist")
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(wheel, tmp_path_factory.mktemp("installed") / "venv")


@pytest.mark.slow
@pytest.mark.processes
def test_u3_a_page_of_a_wheel_from_a_clean_clone_works_in_the_browser(
    programs: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    place = run(programs / "python", "-c", "import forge_jobs; print(forge_jobs.__file__)")
    assert Path(place.stdout.strip()).is_relative_to(programs.parent), place
    assert run(programs / "forge", "enqueue", "note", "{}", "--url", url).returncode == 0
    web = (programs / "forge", "web", "--port", "0", "--url", url)
    with started(*web, cwd=tmp_path) as address, charts_of(address):
        pass


@pytest.mark.slow
@pytest.mark.processes
def test_u3_the_quickstart_runs_from_the_wheel(
    programs: Path, project_root: Path, tmp_path: Path
) -> None:
    example = project_root / "examples" / "quickstart" / "hello.py"
    shutil.copy(example, tmp_path / "hello.py")
    ran = run(programs / "python", "hello.py", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["Hello, Ada!", "Hello, Grace!", "Hello, Linus!"]
    worker = (programs / "forge", "worker", "hello:forge", "--queues", "mail")
    with started(*worker, cwd=tmp_path, until="started"):
        sent = run(programs / "forge", "enqueue", "greet", '{"name": "Guido"}', cwd=tmp_path)
        assert sent.returncode == 0, sent
        job = sent.stdout.split()[0]
        deadline = time.monotonic() + PATIENCE_S
        while '"done"' not in (shown := run_forge(programs, tmp_path, "jobs", "show", job)):
            assert time.monotonic() < deadline, shown
    assert "Hello, Guido!" in shown
    examined = run(programs / "forge", "doctor", "--json", cwd=tmp_path)
    assert examined.returncode == 0, examined
    assert '"failed"' not in examined.stdout


@pytest.mark.slow
@pytest.mark.processes
def test_u3_the_demos_run_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    demo = (programs / "forge", "demo", "--port", "0")
    with started(*demo, cwd=tmp_path) as address, charts_of(address) as page:
        page.goto("/jobs")
        expect(page.locator("tbody tr").first).to_be_visible()
    gateway = (programs / "telegram-gateway", "demo", "--port", "0")
    with (
        started(*gateway, cwd=tmp_path) as address,
        chromium() as browser,
        open_window(browser, address) as page,
    ):
        page.goto("/")
        page.get_by_role("textbox").first.fill("from the wheel")
        page.keyboard.press("Enter")
        expect(page.get_by_text("from the wheel")).to_have_count(2)


@pytest.mark.slow
@pytest.mark.processes
def test_the_applications_run_from_the_wheel(
    programs: Path, project_root: Path, tmp_path: Path
) -> None:
    """Their demos and their tests, copied out of the repository."""
    shutil.copytree(
        project_root / "examples",
        tmp_path / "examples",
        ignore=shutil.ignore_patterns("__pycache__", "*.db*"),
    )

    def demo(name: str) -> tuple[str, str]:
        folder = tmp_path / "run" / Path(name).stem
        folder.mkdir(parents=True)
        ran = run(programs / "python", tmp_path / "examples" / name, cwd=folder)
        assert ran.returncode == 0, ran
        return name, ran.stdout

    with ThreadPoolExecutor(3) as side_by_side:
        assert dict(side_by_side.map(demo, PRINTED)) == PRINTED
    folders = [tmp_path / "examples" / name for name in APPLICATIONS]
    ran = run(programs / "python", "-m", "pytest", "-q", *PLAIN, *folders, cwd=tmp_path)
    assert ran.returncode == 0, ran
    assert " passed" in ran.stdout


@pytest.mark.slow
@pytest.mark.processes
def test_the_tutorial_runs_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    save_tutorial(tmp_path)
    ran = run(
        programs / "python", "-m", "pytest", "-q", *PLAIN, "--rootdir", ".", ".", cwd=tmp_path
    )
    assert ran.returncode == 0, ran
    assert "3 passed" in ran.stdout
    url = ("--url", f"sqlite:///{tmp_path / 'shop.db'}")
    worker = (programs / "forge", "worker", "shop:forge", *url)
    with started(*worker, cwd=tmp_path, until="started"):
        shown = run(programs / "forge", "workers", "--json", *url, cwd=tmp_path)
    assert shown.returncode == 0, shown
    assert '"host_id"' in shown.stdout


def run_forge(programs: Path, folder: Path, *words: str) -> str:
    """What a command of the wheel prints as JSON."""
    done = run(programs / "forge", *words, "--json", cwd=folder)
    assert done.returncode == 0, done
    return done.stdout


def test_u3_a_wheel_has_every_file_that_is_pinned(wheel: Path) -> None:
    assert names_in(wheel) >= SCRIPTS | CHARTS
    licences = {name for name in names_in(wheel) if name.endswith(".LICENSE")}
    assert len(licences) == 5


@pytest.mark.slow
def test_u3_a_source_archive_carries_the_files_and_needs_no_npm(
    project_root: Path, tmp_path: Path
) -> None:
    source = clone(project_root, tmp_path / "source")
    hatch = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "-d"]
    done = run(*hatch, tmp_path / "dist", cwd=source)
    assert done.returncode == 0, done.stderr
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        (root,) = {name.split("/")[0] for name in packed.getnames()}
        assert {f"{root}/src/{name}" for name in SCRIPTS | CHARTS} <= set(packed.getnames())
    (tmp_path / "empty").mkdir()
    done = build(archive, tmp_path / "wheels", path=tmp_path / "empty")
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "wheels").iterdir()
    assert names_in(made) >= SCRIPTS | CHARTS


@pytest.mark.parametrize("npm", [None, "#!/bin/sh\nexit 1\n"], ids=["no npm", "npm fails"])
def test_u3_without_npm_nothing_is_built_and_the_remedy_is_named(
    project_root: Path, tmp_path: Path, npm: str | None
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    if npm is not None:
        (tools / "npm").write_text(npm)
        (tools / "npm").chmod(0o755)
    source = clone(project_root, tmp_path / "source")
    done = build(source, tmp_path / "dist", path=tools)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "scripts of Mission Control's pages are missing" in said
    assert "install Node.js with npm" in said
    assert "make setup" in said
    assert "released wheel" in said
    assert not list(tmp_path.rglob("*.whl"))


def test_u3_files_that_are_not_the_pinned_ones_are_not_packed(
    project_root: Path, tmp_path: Path, wheel: Path
) -> None:
    source = clone(project_root, tmp_path / "source")
    with zipfile.ZipFile(wheel) as packed:
        kept = [name for name in packed.namelist() if name.startswith(VENDOR)]
        packed.extractall(source / "src", kept)
    (tmp_path / "empty").mkdir()
    assert build(source, tmp_path / "fine", path=tmp_path / "empty").returncode == 0
    script = source / "src" / VENDOR / "htmx.min.js"
    script.write_bytes(script.read_bytes()[:1000])
    done = build(source, tmp_path / "cut", path=tmp_path / "empty")
    assert done.returncode != 0
    assert "there is no npm" in done.stdout + done.stderr


def test_u3_an_editable_install_needs_no_npm(project_root: Path, tmp_path: Path) -> None:
    source = clone(project_root, tmp_path / "source")
    (tmp_path / "empty").mkdir()
    assert run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv").returncode == 0
    pip = [*PIP, "--python", tmp_path / "venv" / "bin" / "python", "install", "--no-index"]
    # the build tools have to be found by the interpreter that pip installs for
    place = sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")})
    Path(place, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = run(*pip, "--no-deps", "--no-build-isolation", "-e", source, path=tmp_path / "empty")
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_u3_missing_files_are_told_when_something_starts(wheel: Path, tmp_path: Path) -> None:
    programs = environment(wheel, tmp_path / "venv")
    (lib,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    shutil.rmtree(lib / VENDOR)
    url = ("--url", f"sqlite:///{tmp_path / 'jobs.db'}")
    assert run(programs / "forge", "db", "create", *url).returncode == 0
    for words in (["web", "--port", "0", *url], ["demo", "--seconds", "1"]):
        said = run(programs / "forge", *words, cwd=tmp_path)
        assert said.returncode == 2, said
        assert "vendor/htmx.min.js" in said.stderr
        assert "make setup" in said.stderr
    examined = run(programs / "forge", "doctor", "--json", *url)
    assert examined.returncode == 0, examined
    assert '"pages"' in examined.stdout
    assert "make setup" in examined.stdout
