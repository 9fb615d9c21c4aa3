"""The files of examples/monitoring and examples/deploy: the metrics, labels, options, environment
variables and tasks that they name exist."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs import Context, Forge, Throttled
from forge_jobs.cli.commands import tree
from forge_jobs.ops.prometheus import prometheus_text
from telegram_gateway import metrics as gateway_metrics
from telegram_gateway.cli import app as gateway_app

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "examples" / "monitoring"
DEPLOY = ROOT / "examples" / "deploy"
RULES = MONITORING / "prometheus-rules.yml"
DASHBOARD = MONITORING / "grafana-dashboard.json"

# Of the image, of Python and of uvicorn.
OTHERS_VARIABLES = {
    "POSTGRES_USER", "POSTGRES_PASSWORD", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "FORWARDED_ALLOW_IPS",
}  # fmt: skip
# Labels of the gateway's metrics; they are printed once something was counted.
GATEWAY_LABELS = {"bot", "outcome", "result", "step", "le"}


def rules() -> list[dict[str, Any]]:
    text = yaml.safe_load(RULES.read_text())
    return [rule for group in text["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text())["panels"]


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [rule["expr"] for rule in rules()] + asked


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:forge|gateway)_[a-z_]+", expression))


def selectors_in(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The labels that a selector compares, by metric."""
    for name, inside in re.findall(r"\b((?:forge|gateway)_[a-z_]+)\{([^}]*)\}", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))


def groups_in(expression: str) -> set[str]:
    """The labels that an expression groups or joins by."""
    found = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression)
    return {label.strip() for labels in found for label in labels.split(",")}


@pytest.fixture
async def printed() -> dict[str, set[str]]:
    """The names of all samples that /metrics prints, each with its labels."""
    async with Forge("memory://") as forge:
        forge.rate_limit("smtp", "50/m")

        @forge.task(queue="mail", scopes=["api"])
        async def send(n: int, ctx: Context) -> None:
            if n:
                raise Throttled(retry_after=3_600, scope="api")

        await send.aenqueue(0)
        await send.aenqueue(1)
        found: dict[str, set[str]] = {}
        async with forge.worker(queues=["mail"]):
            async with asyncio.timeout(30):
                while (
                    "forge_scope_throttled" not in found
                    or "forge_job_wait_seconds_bucket" not in found
                ):
                    for family in text_string_to_metric_families(
                        await prometheus_text(forge.store)
                    ):
                        for sample in family.samples:
                            found.setdefault(sample.name, set()).update(sample.labels)
                    await asyncio.sleep(0.05)
    for name in gateway_metrics.METRICS:
        suffixes = ("_bucket", "_sum", "_count") if name == "gateway_door_seconds" else ("",)
        found.update({name + suffix: GATEWAY_LABELS for suffix in suffixes})
    return found


async def test_every_metric_and_label_exists(printed: dict[str, set[str]]) -> None:
    used: set[str] = set()
    for expression in expressions():
        names = names_in(expression)
        used |= names
        assert names, expression
        assert not names - set(printed), expression
        assert all(groups_in(expression) <= printed[name] for name in names), expression
        for name, labels in selectors_in(expression):
            assert labels <= printed[name], expression
    variable = json.loads(DASHBOARD.read_text())["templating"]["list"][1]["query"]["query"]
    assert names_in(variable) <= set(printed)
    # The dashboard is to show all there is, histograms by their buckets.
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in printed}
    assert bases - {re.sub(r"_bucket$", "", name) for name in used} == {"gateway_janitor_total"}


def test_no_expression_counts_twice_when_several_workers_are_scraped() -> None:
    """Every worker tells the same: a sum over forge_ metrics has a max inside."""
    for expression in expressions():
        if "forge_" in expression:
            assert "max" in expression, expression


def test_every_alert_says_what_to_do() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert f"`{rule['alert']}`" in page, f"docs/monitoring.md does not explain {rule['alert']}"


def test_panels_have_ids_and_places_of_their_own() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in panels()
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)


def documents(*names: str) -> Iterator[Any]:
    for name in names:
        for path in sorted(DEPLOY.glob(name)) or sorted(MONITORING.glob(name)):
            yield from yaml.safe_load_all(path.read_text())


def commands() -> list[list[str]]:
    """Every command line of the files, in words."""
    found: list[list[str]] = []
    for unit in DEPLOY.glob("systemd/*.service"):
        lines = re.findall(r"^ExecStart(?:Pre)?=(.+)$", unit.read_text(), re.M)
        assert lines, unit
        found += [shlex.split(line) for line in lines]
    image = (DEPLOY / "container" / "Dockerfile").read_text()
    found.append(json.loads(re.search(r"^CMD (.+)$", image, re.M)[1]))  # type: ignore[index]
    services = next(documents("container/compose.yaml"))["services"]
    found += [service["command"] for service in services.values() if "command" in service]
    for document in documents("kubernetes/*.yaml"):
        if "template" in document.get("spec", {}):
            for container in document["spec"]["template"]["spec"]["containers"]:
                found.append([*container["command"], *container.get("args", ())])
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_and_option_exists(words: list[str]) -> None:
    program, *rest = words
    name = Path(program).name
    assert name in ("forge", "telegram-gateway")
    command = typer.main.get_command(tree() if name == "forge" else gateway_app)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
    # Reads the options as the command does, without calling it.
    context = command.make_context(name, rest, resilient_parsing=False)
    if context.command.name == "worker":
        module, _, attribute = context.params["app"].partition(":")
        assert (module, attribute) == ("shop.jobs", "forge")


def variables() -> set[str]:
    """Every environment variable that the files set."""
    found: set[str] = set()
    for path in DEPLOY.glob("systemd/*.env"):
        found |= set(re.findall(r"^(\w+)=", path.read_text(), re.M))
    for line in re.findall(r"^ENV (.+)$", (DEPLOY / "container" / "Dockerfile").read_text(), re.M):
        found |= {word.partition("=")[0] for word in shlex.split(line)}
    for service in next(documents("container/compose.yaml"))["services"].values():
        found |= set(service.get("environment", ()))
    for document in documents("kubernetes/*.yaml"):
        found |= set(document.get("stringData", ()))
        found |= {name for name in document.get("data", ()) if not name.endswith(".yaml")}
        for container in (
            document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
        ):
            found |= {entry["name"] for entry in container.get("env", ())}
    return found


def known_variables() -> set[str]:
    """Every environment variable that the packages name in their code."""
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    return {name for text in texts for name in re.findall(r'"([A-Z][A-Z_]{3,})"', text)}


def test_every_environment_variable_exists() -> None:
    ours = {
        name
        for name in variables() - OTHERS_VARIABLES
        if not re.fullmatch(r"BOT_[A-Z]+_(TOKEN|SECRET)", name)
    }
    assert len(ours) >= 8
    assert ours <= known_variables()


def test_a_stopped_worker_has_time_for_its_grace() -> None:
    unit = (DEPLOY / "systemd" / "shop-worker.service").read_text()
    grace, stop = re.search(r"--grace (\d+)s", unit), re.search(r"TimeoutStopSec=(\d+)", unit)
    assert grace is not None
    assert stop is not None
    assert int(stop[1]) > int(grace[1]) + 2
    for document in documents("kubernetes/worker.yaml"):
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["spec"]
            words = pod["containers"][0]["args"]
            seconds = words[words.index("--grace") + 1].removesuffix("s")
            assert pod["terminationGracePeriodSeconds"] > int(seconds) + 2


def test_probes_ask_ports_and_paths_that_are_served() -> None:
    for document in documents("kubernetes/*.yaml"):
        if document["kind"] != "Deployment":
            continue
        [container] = document["spec"]["template"]["spec"]["containers"]
        [port] = container["ports"]
        line = " ".join([*container["command"], *container.get("args", ())])
        listens = next((e["value"] for e in container.get("env", ()) if e["name"] == "LISTEN"), "")
        assert f"port {port['containerPort']}" in line or listens.endswith(
            f":{port['containerPort']}"
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container.get(probe, {}).get("httpGet")
            if asked is not None:
                assert asked["port"] == port["name"]
                assert asked["path"] == ("/healthz" if probe == "livenessProbe" else "/readyz")


def test_the_application_of_the_container_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(DEPLOY / "container"))
    monkeypatch.setenv("FORGE_URL", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.delitem(__import__("sys").modules, "shop", raising=False)
    jobs = import_module("shop.jobs")
    try:
        job = jobs.send.enqueue("ada@example.org")
        jobs.forge.drain().run()
        assert job.result(timeout=5) == "sent to ada@example.org"
    finally:
        jobs.forge.close()
        for name in ("shop", "shop.jobs"):
            monkeypatch.delitem(__import__("sys").modules, name, raising=False)


def test_every_file_is_read_by_a_test() -> None:
    """So that no file is added here that nothing looks at."""
    read = {
        "systemd/shop.env", "systemd/gateway.env", "systemd/shop-worker.service",
        "systemd/shop-web.service", "systemd/shop-migrate.service",
        "systemd/telegram-gateway.service", "container/Dockerfile", "container/.dockerignore",
        "container/requirements.txt", "container/compose.yaml", "container/shop/__init__.py",
        "container/shop/jobs.py", "kubernetes/config.yaml", "kubernetes/migrate.yaml",
        "kubernetes/worker.yaml", "kubernetes/web.yaml", "kubernetes/gateway.yaml", "README.md",
    }  # fmt: skip
    files = (path for path in DEPLOY.rglob("*") if path.is_file())
    found = {path.relative_to(DEPLOY).as_posix() for path in files if path.suffix != ".pyc"}
    assert found == read
    assert next(iter(documents("prometheus.yml")))["rule_files"] == [RULES.name]
    assert {path.name for path in MONITORING.iterdir()} == {
        "README.md", "prometheus.yml", "prometheus-rules.yml", "grafana-dashboard.json",
    }  # fmt: skip
