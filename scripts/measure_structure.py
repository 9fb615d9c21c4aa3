"""Measure the structure of the code: `python -m scripts.measure_structure --commit A --commit B`.

Prints one table with a column per commit; without --commit it measures the working tree. The script
is the same for every commit, so that two columns can be compared although files were renamed and
moved. `structure.way` says how a job's way is traced, `structure.shape` what the sizes count,
`retired_words` which names are reported.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import retired_words
from scripts.structure import shape, way

ROOT = Path(__file__).resolve().parent.parent
WORKING_TREE = "working tree"
STORES = ("sqlite", "postgres")
SCOPES = ("src/forge_jobs", "src/telegram_gateway", "benchmarks", "scripts", "tests")
TEST_STORE = "tests/keyvalue_store"

Row = tuple[str, str]
"""A label and its value."""


class NoCommit(Exception):
    """Git cannot unpack the commit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything about one tree. `ways` is empty when nothing was traced."""

    name: str
    sizes: shape.Sizes
    contracts: shape.Contracts
    doubled: dict[str, list[str]]
    doubled_gateway: dict[str, list[str]]
    retired: dict[str, list[retired_words.Occurrence]]
    test_store_lines: int | None
    ways: dict[str, way.Way]


def static(name: str, root: Path, test_store: str = TEST_STORE) -> Measured:
    """What the files of a tree tell, without running anything."""
    package = root / "src" / "forge_jobs"
    return Measured(
        name=name,
        sizes=shape.sizes(package),
        contracts=shape.contracts(package),
        doubled=shape.doubled_classes(package),
        doubled_gateway=shape.doubled_classes(root / "src" / "telegram_gateway"),
        retired={
            scope: list(retired_words.occurrences(root / scope, root))
            for scope in SCOPES
            if (root / scope).is_dir()
        },
        test_store_lines=shape.folder_lines(root / test_store),
        ways={},
    )


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """A temporary folder with the files of a commit."""
    command = ["git", "archive", "--format=tar", commit]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        raise NoCommit(packed.stderr.decode().strip())
    with tempfile.TemporaryDirectory(prefix="forge-structure-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


@contextmanager
def empty_stores(names: Sequence[str], count: int) -> Iterator[list[dict[str, str]]]:
    """`count` times the address of an empty store by the name of its kind."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forge-structure-"))
        urls: list[dict[str, str]] = [{} for _ in range(count)]
        if "sqlite" in names:
            for number, addresses in enumerate(urls):
                addresses["sqlite"] = f"sqlite:///{folder}/jobs{number}.db"
        if "postgres" in names:
            # Imported here, because it needs the test tools.
            from tests.postgres.server import private_server

            server = stack.enter_context(private_server())
            for number, addresses in enumerate(urls):
                server.sql(f"CREATE DATABASE measured{number}")
                addresses["postgres"] = server.url(database=f"measured{number}")
        yield urls


def measure(commits: Sequence[str], stores: Sequence[str], test_store: str) -> list[Measured]:
    """One tree after the other; the working tree if there is no commit."""
    names = list(commits) or [WORKING_TREE]
    measured: list[Measured] = []
    with empty_stores(stores, len(names)) as urls:
        for name, addresses in zip(names, urls, strict=True):
            with ExitStack() as stack:
                root = stack.enter_context(unpacked(name)) if commits else ROOT
                ways = {store: way.traced(root / "src", url) for store, url in addresses.items()}
                told = static(name, root, test_store)
            measured.append(dataclasses.replace(told, ways=ways))
    return measured


def rows(one: Measured) -> Iterator[Row]:
    """The table's rows for one tree, in order."""
    for store, traced in one.ways.items():
        for what, functions in (("on the way", traced.on_the_way), ("seen", traced.seen)):
            found = len(way.files(functions))
            yield f"job on {store}: files / functions {what}", f"{found} / {len(functions)}"
    yield "contract methods (and properties)", _promised(one.contracts)
    for name, contract in one.contracts.classes.items():
        yield f"  {name}", _promised(contract)
    yield from _size_rows(one.sizes)
    yield "class names defined twice or more", _doubled(one.doubled)
    yield "  in telegram_gateway", _doubled(one.doubled_gateway)
    for scope, found in one.retired.items():
        tests = sum(occurrence.kind == "test function" for occurrence in found)
        apart = f" + {tests} test functions" if tests else ""
        yield f"retired words in {scope}", f"{len(found) - tests}{apart}"
    lines = one.test_store_lines
    yield "test store, lines", "-" if lines is None else f"{lines:,}"


def _size_rows(sizes: shape.Sizes) -> Iterator[Row]:
    files, lines = sizes.python_files + sizes.sql_files, sizes.python_lines + sizes.sql_lines
    yield "library: lines / files", f"{lines:,} / {files}"
    yield "  Python", f"{sizes.python_lines:,} / {sizes.python_files}"
    yield "  SQL", f"{sizes.sql_lines:,} / {sizes.sql_files}"
    yield "longest Python file", str(sizes.longest_python_file)
    yield "longest SQL file", str(sizes.longest_sql_file)
    yield "longest function", str(sizes.longest_function)


def _promised(contract: shape.Contract | shape.Contracts) -> str:
    return f"{contract.methods} (+{contract.properties})"


def _doubled(classes: dict[str, list[str]]) -> str:
    return f"{len(classes)} (defined {sum(map(len, classes.values()))} times)"


def table(measured: Sequence[Measured]) -> str:
    """Markdown. A row that one tree has not, such as a contract of that name, shows `-` there."""
    columns = [dict(rows(one)) for one in measured]
    labels: list[str] = []
    for column in columns:
        # A label that is new goes behind the one that comes before it in its own column.
        before = -1
        for label in column:
            if label not in labels:
                labels.insert(before + 1, label)
            before = labels.index(label)
    cells = [["", *(one.name for one in measured)]]
    cells += [[label, *(column.get(label, "-") for column in columns)] for label in labels]
    widths = [max(len(line[n]) for line in cells) for n in range(len(cells[0]))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def details(one: Measured) -> Iterator[str]:
    """What --list adds: every name behind the counts."""
    for store, traced in one.ways.items():
        yield f"\n{one.name}, job on {store}: files on the way, by folder"
        yield "  " + ", ".join(f"{k} {v}" for k, v in shape.by_folder(traced.files).items())
        for file in sorted(traced.files):
            inside = sorted(name for where, name in traced.on_the_way if where == file)
            yield f"  {file}: {', '.join(inside)}"
    yield f"\n{one.name}: class names defined twice or more"
    for name, homes in [*one.doubled.items(), *one.doubled_gateway.items()]:
        yield f"  {name}: {', '.join(homes)}"
    yield f"\n{one.name}: retired words"
    for found in one.retired.values():
        yield from (f"  {occurrence}" for occurrence in found)


def as_json(one: Measured) -> dict[str, Any]:
    """Everything, with names in place of counts."""
    ways = {
        store: {"on_the_way": sorted(traced.on_the_way), "seen": sorted(traced.seen)}
        for store, traced in one.ways.items()
    }
    told = dataclasses.asdict(dataclasses.replace(one, ways={}))
    return {**told, "ways": ways, "table": dict(rows(one))}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.measure_structure")
    parser.add_argument("--commit", action="append", default=[], help="once per column")
    parser.add_argument("--store", action="append", choices=STORES, help="trace only on these")
    parser.add_argument("--no-trace", action="store_true", help="run no jobs, only read files")
    parser.add_argument("--test-store", default=TEST_STORE, metavar="PATH", help="its folder")
    parser.add_argument("--list", action="store_true", help="also print every name")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    given = parser.parse_args(arguments)
    stores = () if given.no_trace else given.store or STORES
    try:
        measured = measure(given.commit, stores, given.test_store)
    except (way.ProbeFailed, NoCommit) as error:
        print(error, file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([as_json(one) for one in measured], indent=2))
        return 0
    print(table(measured))
    if given.list:
        for one in measured:
            print("\n".join(details(one)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
