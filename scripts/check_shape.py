"""Check what no linter checks: length of files and functions, width of contracts, module names."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 60
CONTRACT_METHODS = 14
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


def _is_protocol(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    names = [base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in bases]
    return "Protocol" in names


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(problems(root))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
