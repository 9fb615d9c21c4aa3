"""Reference of the configuration: environment variables, forge.toml and the engine's settings."""

import tomllib
from pathlib import Path
from typing import Any, Final

from forge_jobs.app.worker import WorkerKeywords
from forge_jobs.config import DEFAULT_QUEUE_WORKERS, EngineSettings, file
from forge_jobs.core.decide import Budgets
from forge_jobs.core.retry import Backoff

from .markdown import block, code, docstring, document, table
from .signatures import fields

KEYS: Final = {
    "url": "Address of the store. A relative path of SQLite is relative to the file.",
    "password_env": "Name of the environment variable that holds the password of `url`.",
    "queues": (
        "Table of queues: `mail = 20`, or `mail = { slots = 20 }`; "
        f"{DEFAULT_QUEUE_WORKERS} slots without a number."
    ),
    "schedules": "Table of schedules, see below.",
    "redact_names": "List of names whose values are hidden beside the built-in ones.",
    "alerts": "Table of alert rules, see [alerts.md](../alerts.md).",
    "trace_url": "Address of a trace with `{trace_id}` in it; the page of a job links to it.",
}
SCHEDULE_KEYS: Final = {
    "cron": "The expression, five or six fields. Required.",
    "kind": "The kind of the jobs. Required.",
    "payload": "Table with the arguments.",
    "tz": "Time zone, default UTC.",
    "missed": "What happens to ticks that nobody ran: `once`, `all` or `skip`.",
    "missed_limit": "How many ticks `all` makes up for.",
    "overlap": "What happens while the job of an earlier tick is live: `skip` or `allow`.",
    "jitter": "Largest random delay of each tick.",
    "queue": "Queue of the jobs; else that of the task.",
    "max_attempts": "Attempts of the jobs; else those of the task.",
}
_EXAMPLE: Final = """
url = "postgresql://app@db/app"
password_env = "DB_PASSWORD"
redact_names = ["iban"]

[queues]
mail = 20

[schedules.nightly]
cron = "0 3 * * *"
kind = "report"
tz = "Europe/Paris"
payload = { format = "pdf" }

[alerts.late]
condition = "longest_wait"
above = "5m"
url = "https://hooks.example.com/forge"
"""


def variables() -> dict[str, dict[str, str]]:
    """The environment variables and what they mean."""
    return tomllib.loads(Path(__file__).with_name("variables.toml").read_text(encoding="utf-8"))


def page() -> str:
    """The page of the configuration."""
    assert tuple(KEYS) == file._KEYS
    assert tuple(SCHEDULE_KEYS) == file._SCHEDULE_KEYS
    return document(
        "# Configuration",
        "An argument of the command or of `Forge` comes first, then the environment, then "
        "forge.toml, then the default.",
        "## Environment variables",
        table(
            ("variable", "meaning", "default"),
            [
                (code(name), one["means"], one.get("default", ""))
                for name, one in variables().items()
            ],
        ),
        "The Telegram gateway has variables of its own: [gateway.md](../gateway.md).",
        "## forge.toml",
        f"Looked for in the working folder and up to {file.LEVELS_UP} folders above it, then in "
        "the user's configuration folder. Unknown keys are refused.",
        table(("key", "meaning"), ((code(name), text) for name, text in KEYS.items())),
        "The keys of a schedule ([cron.md](../cron.md) explains them):",
        table(("key", "meaning"), ((code(name), text) for name, text in SCHEDULE_KEYS.items())),
        block(_EXAMPLE.strip(), "toml"),
        *_class("EngineSettings", EngineSettings, "For `Forge(settings=EngineSettings(...))`."),
        *_class(
            "Backoff",
            Backoff,
            "The retries of tasks without `retry=`.",
        ),
        *_class("Budgets", Budgets, "The type of `EngineSettings.budgets`."),
        *_class("Options of a worker", WorkerKeywords, "For `forge.worker(...)`."),
    )


def _class(title: str, cls: type[Any], intro: str) -> list[str]:
    rows = [(code(name), code(kind), code(default)) for name, kind, default in fields(cls)]
    return [
        f"## {title}",
        intro,
        docstring(cls.__doc__),
        table(("setting", "type", "default"), rows),
    ]
