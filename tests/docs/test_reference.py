"""docs/reference is what the code says: every name, option, setting, flag, metric and code."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import forge_jobs
from forge_jobs.cli.error_help import explanations
from forge_jobs.client.options import JobOptions, TaskOptions
from forge_jobs.config import EngineSettings, file
from forge_jobs.core.errors import ForgeError
from forge_jobs.web.api.openapi import openapi_document
from scripts.docs_site.reference import (
    COMMAND,
    FOLDER,
    configuration,
    gateway,
    pages,
    python_names,
)
from scripts.docs_site.reference.command_line import commands
from scripts.docs_site.reference.http_routes import operations
from scripts.docs_site.reference.metric_names import metrics
from telegram_gateway.config import settings as gateway_settings
from telegram_gateway.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
_VARIABLE = re.compile(r"(?:FORGE_[A-Z_]+|DATABASE_URL|XDG_CONFIG_HOME)")


def page(name: str) -> str:
    return (ROOT / FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "text"), pages().items(), ids=lambda one: str(one)[:20])
def test_the_page_is_up_to_date(name: str, text: str) -> None:
    assert page(name) == text, f"{FOLDER / name} is old: run {COMMAND}"


def test_nothing_else_is_in_the_folder() -> None:
    assert {path.name for path in (ROOT / FOLDER).iterdir()} == set(pages())


def test_every_public_name_is_on_a_page() -> None:
    errors = {
        name
        for name in forge_jobs.__all__
        if isinstance(value := getattr(forge_jobs, name), type) and issubclass(value, ForgeError)
    }
    assert errors == {one.error for one in explanations().values() if one.error}
    assert python_names.listed() | errors | {"JobQueue"} == set(forge_jobs.__all__)
    assert "\n## JobQueue\n" in page("pull.md")


@pytest.mark.parametrize("options", [TaskOptions, JobOptions, EngineSettings])
def test_every_option_is_on_a_page(options: Any) -> None:
    text = page("python.md")
    section = text.split(f"\n## {options.__name__}\n")[1].split("\n## ")[0]
    for name in options.__annotations__:
        assert f"| `{name}` |" in section
        # Not only in the table: what it does is said, too.
        assert f"`{name}" in section.split("\n| field |")[0]


def test_every_environment_variable_is_on_the_page() -> None:
    read = {
        node.value
        for path in (ROOT / "src" / "forge_jobs").rglob("*.py")
        if _VARIABLE.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _VARIABLE.fullmatch(node.value)
    }
    keywords = {"FORGE_URL", "FORGE_AUTO_MIGRATE"}
    assert read | keywords == set(configuration.variables())
    for name in read:
        assert f"| `{name}` |" in page("configuration.md")


def test_every_variable_of_the_gateway_is_on_its_page() -> None:
    source = Path(gateway_settings.__file__).read_text()
    calls = r'env\.(?:text|duration|integer|ids|secret)\(\s*"([A-Z_]+)"'
    helpers = r'_read_\w+\(env, problems, "([A-Z_]+)"\)'
    names = {*re.findall(calls, source), *re.findall(helpers, source)}
    assert len(names) > 15
    text = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    assert [name for name in sorted(names) if name not in text] == []


@pytest.mark.parametrize("key", [*file._KEYS, *file._SCHEDULE_KEYS])
def test_every_key_of_forge_toml_is_on_the_page(key: str) -> None:
    assert f"| `{key}` |" in page("configuration.md")


def test_every_command_and_flag_is_on_the_page() -> None:
    import typer

    from forge_jobs.cli.commands import tree

    text = page("cli.md")
    found = list(commands(typer.main.get_command(tree()), "forge"))
    assert len(found) > 50
    for name, command in found:
        assert re.search(rf"^##+ {name}$", text, re.M), name
        section = re.split(rf"^##+ {name}$", text, flags=re.M)[1].split("\n#")[0]
        for parameter in command.params:
            for flag in [*parameter.opts, *parameter.secondary_opts]:
                assert flag in section or parameter.param_type_name == "argument", (name, flag)


def test_every_metric_is_on_the_page() -> None:
    source = (ROOT / "src/forge_jobs/ops/prometheus.py").read_text()
    named = set(re.findall(r'"(forge_[a-z_]+[a-z])"', source))
    names = {name for name, *_ in metrics()}
    assert named <= names
    assert len(names) > 20
    for name in names:
        assert f"| `{name}` |" in page("metrics.md")


def test_every_command_flag_and_metric_of_the_gateway_is_on_the_page() -> None:
    text = page("gateway.md")
    found = list(commands(gateway.command(), "telegram-gateway"))
    assert len(found) > 10
    for name, command in found:
        section = re.split(rf"^##+ {name}$", text, flags=re.M)[1].split("\n#")[0]
        for parameter in command.params:
            for flag in [*parameter.opts, *parameter.secondary_opts]:
                assert flag in section or parameter.param_type_name == "argument", (name, flag)
    sources = [one.read_text() for one in Path(gateway_settings.__file__).parents[1].rglob("*.py")]
    counted = {name for one in sources for name in re.findall(r'"(gateway_[a-z_]+[a-z])"', one)}
    counted = {name for name in counted if re.search(r"_(total|seconds|refused|updates)$", name)}
    assert counted == set(METRICS)
    for name in counted:
        assert f"| `{name}` |" in text


def test_every_error_code_is_on_the_page() -> None:
    for code in explanations():
        assert f"\n## {code}\n" in page("errors.md")


def test_every_route_and_field_is_on_the_page() -> None:
    text = page("http.md")
    described = openapi_document("", read_only=False)
    for path, method, operation in operations(described):
        section = text.split(f"\n### {method} {path}\n")[1].split("\n#")[0]
        for parameter in operation["parameters"]:
            assert f"| `{parameter['name']}` |" in section
    for name, schema in described["components"]["schemas"].items():
        section = text.split(f"\n### {name}\n")[1].split("\n#")[0]
        for field in schema.get("properties", ()):
            assert f"| `{field}` |" in section
