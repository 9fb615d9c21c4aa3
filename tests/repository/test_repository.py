"""The repository itself: what is committed, what make offers, what each module says of itself."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from forge_jobs import NotYet, open_storage

# Spelled in two halves so that this file does not name what it forbids.
REGISTRY_HOSTS = [
    left + right
    for left, right in [
        ("pypi", ".org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
        ("npm", "js.com"),
        ("yarn", "pkg.com"),
        ("jsde", "livr.net"),
        ("un", "pkg.com"),
    ]
]
MACHINE_PATH = re.compile(r"(?<![\w.$})~-])/(?:work|root|tmp|home/\w+|Users/\w+)/")
SKIPPED_FOLDERS = {".git", ".venv", "node_modules", "dist", "build", "__pycache__"}


def committed_files(root: Path) -> list[Path]:
    """The files under version control; all files but generated ones where there is no git."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
        )
        paths = [root / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [
            path
            for path in root.rglob("*")
            if not any(
                part in SKIPPED_FOLDERS or part.endswith("_cache")
                for part in path.relative_to(root).parts
            )
        ]
    return [path for path in paths if path.is_file()]


def make(root: Path, *targets: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", *targets], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_no_file_names_a_registry_or_a_path_of_some_machine(project_root: Path) -> None:
    found: list[str] = []
    for path in committed_files(project_root):
        text = path.read_bytes().decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            lowered = line.lower()
            if any(host in lowered for host in REGISTRY_HOSTS) or MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(project_root)}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["see /" + "tmp/a", "'sqlite:////" + "tmp/x.db'", "/" + "root/x"])
def test_the_path_rule_sees_a_path(line: str) -> None:
    assert MACHINE_PATH.search(line)


def test_requirements_are_pinned_by_hash_and_hold_no_address(project_root: Path) -> None:
    locks = sorted((project_root / "requirements").glob("*.txt"))
    assert {lock.stem for lock in locks} >= {"base", "build", "dev", "bench"}
    for lock in locks:
        text = lock.read_text()
        assert "://" not in text
        assert not re.search(r"^\s*(--(extra-)?index-url|--find-links|-i |-f |-e )", text, re.M)
        for block in re.split(r"\n(?=\S)", text):
            if not block.startswith(("#", "\n")) and block.strip():
                assert re.match(r"[a-z0-9-]+==\S+", block), f"{lock.name}: not pinned: {block[:60]}"
                assert "--hash=sha256:" in block, f"{lock.name}: no hash: {block[:60]}"


def test_base_requirements_are_those_of_the_package(project_root: Path) -> None:
    project = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]
    lines = (project_root / "requirements" / "base.in").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == project["dependencies"]


def test_every_make_target_is_in_the_help(project_root: Path) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (project_root / "Makefile").read_text(), re.M)
    assert set(targets) >= {"setup", "demo", "test", "check", "bench", "storm", "sim", "fmt"}
    shown = re.findall(r"^  make (\S+) +\S", make(project_root), re.M)
    assert sorted(shown) == sorted(targets)


def test_the_index_of_decisions_names_each_of_them_in_order(project_root: Path) -> None:
    folder = project_root / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    rows = re.findall(r"^\| (\d{4}) \| \[(.+)\]\((\S+)\) \|$", index, re.M)
    assert len(rows) == index.count("\n| 0")
    assert [name for _, _, name in rows] == sorted(path.name for path in folder.glob("0*.md"))
    for number, title, name in rows:
        heading = (folder / name).read_text().splitlines()[0]
        assert name.startswith(f"{number}-")
        # The index may leave out the half behind a comma.
        assert heading.startswith(f"# {number}. {title}")


def test_every_module_says_what_it_is_for(project_root: Path) -> None:
    silent = [
        path.relative_to(project_root).as_posix()
        for path in sorted((project_root / "src").rglob("*.py"))
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def check_shape(project_root: Path, tree: Path) -> subprocess.CompletedProcess[str]:
    script = project_root / "scripts" / "check_shape.py"
    return subprocess.run(
        [sys.executable, str(script), str(tree)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("long.py", "x = 1\n" * 401, "401 lines"),
        ("tall.py", "def tall():\n" + "    x = 1\n" * 60, "tall has 61 lines"),
        ("helpers.py", "", "says nothing"),
        (
            "store/wide.py",
            "class Wide(Protocol):\n" + "".join(f"    def m{n}(self): ...\n" for n in range(15)),
            "promises 15 methods",
        ),
    ],
)
def test_the_shape_check_names_what_is_too_large(
    project_root: Path, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    path = tmp_path / "src" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = check_shape(project_root, tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr


def test_the_shape_check_passes_what_is_just_small_enough(
    project_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fine.py").write_text("def fine():\n" + "    x = 1\n" * 59)
    assert check_shape(project_root, tmp_path).returncode == 0


def test_u15k_an_extra_installs_nothing_for_a_store_that_is_not_there(project_root: Path) -> None:
    project = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    # The name stays: documents and scripts may ask for it.
    assert extras["redis"] == []
    assert not any(re.match(r"redis\b", item) for items in extras.values() for item in items)
    with pytest.raises(NotYet, match="Redis backend is not part of this version"):
        open_storage("redis://localhost/0")
