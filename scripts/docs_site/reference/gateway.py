"""Reference of the Telegram gateway: its commands and its metrics."""

from typing import Any

import typer

from telegram_gateway.cli import app
from telegram_gateway.metrics import METRICS

from .command_line import commands, entry
from .markdown import code, document, table

_LABELS = {
    "gateway_updates_total": "bot, outcome",
    "gateway_sends_total": "bot, result",
    "gateway_door_seconds": "",
    "gateway_janitor_total": "step",
}


def page() -> str:
    """The page of the command ``telegram-gateway`` and of what it counts."""
    rows = [
        (code(name), _kind(name), _LABELS.get(name, "bot"), meaning)
        for name, meaning in METRICS.items()
    ]
    return document(
        "# The telegram-gateway command and its metrics",
        "Environment variables, the keys of `bots.yaml` and what is promised are in "
        "[gateway.md](../gateway.md).",
        *(entry(name, one) for name, one in commands(command(), "telegram-gateway")),
        "## Metrics of the gateway",
        "Answered under `/metrics` in the Prometheus format, beside those of the jobs.",
        table(("metric", "type", "labels", "meaning"), rows),
    )


def command() -> Any:
    """The command line as a tree."""
    return typer.main.get_command(app)


def _kind(name: str) -> str:
    if name.endswith("_total"):
        return "counter"
    return "histogram" if name == "gateway_door_seconds" else "gauge"
