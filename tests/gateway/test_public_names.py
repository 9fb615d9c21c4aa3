"""The gateway uses only exported names of forge_jobs, like any application."""

import ast
from pathlib import Path

import forge_jobs
import forge_jobs.web


def test_the_gateway_imports_exported_names_only(project_root: Path) -> None:
    files = sorted((project_root / "src" / "telegram_gateway").rglob("*.py"))
    public = {"forge_jobs": forge_jobs.__all__, "forge_jobs.web": forge_jobs.web.__all__}
    taken = 0
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ImportFrom(module=str() as module) if module.startswith("forge_jobs"):
                    for alias in node.names:
                        assert alias.name in public.get(module, ()), f"{path.name}: {alias.name}"
                        taken += 1
                case ast.Import():
                    for alias in node.names:
                        assert not alias.name.startswith("forge_jobs"), f"{path.name}: {alias.name}"
                case (
                    ast.Attribute(value=ast.Attribute(attr="forge"))
                    | ast.Attribute(value=ast.Name(id="forge"))
                ):
                    assert not node.attr.startswith("_"), f"{path.name}: forge.{node.attr}"
                case _:
                    pass
    assert taken > 10
