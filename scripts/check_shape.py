"""Check what no linter checks: sizes, width of contracts, names of modules and classes."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import retired_words

FILE_LINES = 400
FUNCTION_LINES = 60
CONTRACT_METHODS = 14
# Folders whose names are checked against docs/glossary.md.
NAMED = ("src", "benchmarks", "scripts", "rigs", "tests")
# The pull queue has its own public job in the words of pull queues; Django looks for a Command.
TWICE_ALLOWED = {"Command", "Job", "JobStatus"}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}


def problems(root: Path) -> Iterator[str]:
    for path in sorted((root / "src").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            yield f"{where}: {lines} lines, at most {FILE_LINES}; split it by subject"
        if path.stem in EMPTY_NAMES:
            yield f"{where}: the name says nothing about what is inside"
        for node in ast.walk(ast.parse(text, where)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES:
                    yield (
                        f"{where}:{node.lineno}: {node.name} has {length} lines, "
                        f"at most {FUNCTION_LINES}"
                    )
            elif isinstance(node, ast.ClassDef) and "/store/" in where and _is_protocol(node):
                # a property only leads to a part; what counts is what can be asked
                methods = sum(
                    isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not any(ast.unparse(one) == "property" for one in item.decorator_list)
                    for item in node.body
                )
                if methods > CONTRACT_METHODS:
                    yield (
                        f"{where}:{node.lineno}: {node.name} promises {methods} methods, "
                        f"at most {CONTRACT_METHODS}"
                    )


def retired_names(root: Path) -> Iterator[str]:
    """Names of modules, classes and top-level functions that contain a retired word."""
    for folder in NAMED:
        for found in retired_words.occurrences(root / folder, root):
            if found.kind != "test function":
                yield f"{found}: the glossary says {found.instead}"


def doubled_classes(root: Path) -> Iterator[str]:
    """Class names that stand for two things in the library, outside the backends."""
    seen: dict[str, str] = {}
    package = root / "src" / "forge_jobs"
    for path in sorted(package.rglob("*.py")):
        if "backends" in path.relative_to(package).parts:
            continue
        where = path.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), where)):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                first = seen.setdefault(name, where)
                if first != where and name not in TWICE_ALLOWED:
                    yield f"{where}:{node.lineno}: {first} has a class {name} already"


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    names = [base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in bases]
    return "Protocol" in names


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = [*problems(root), *retired_names(root), *doubled_classes(root)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
