"""Loads settings and bots from bots.yaml and the environment; reports all mistakes together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from .bot import Bot, HandlerName
from .bot_entry import read_bot
from .problems import Problems
from .settings import Environment, Settings, read_settings


class _UniqueKeyLoader(yaml.SafeLoader):
    """Rejects duplicate keys: a second bot of a name must not silently replace the first."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.MarkedYAMLError(None, None, f"{name!r} is written twice", key.start_mark)
            seen.add(name)
        return cast("dict[Any, Any]", super().construct_mapping(node, deep=deep))


def load(environ: Mapping[str, str]) -> tuple[Settings, list[Bot], list[str]]:
    """Settings, bots and warnings. Raises BadGatewayConfig with every mistake found."""
    problems = Problems()
    env = Environment(environ, problems)
    settings = read_settings(env, problems)
    bots: list[Bot] = []
    for slug, entry in _read_entries(settings.bots_config, problems).items():
        bot = read_bot(slug, entry, env, settings, problems)
        if bot is not None:
            bots.append(bot)
    _check_unique_tokens(bots, problems)
    _check_timeouts(bots, settings, problems)
    _check_auth_bot(bots, problems)
    problems.check()
    return settings, bots, problems.warnings


def _read_entries(path: Path, problems: Problems) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        problems.add(str(path), "cannot be read: set BOTS_CONFIG to your bots.yaml")
        return {}
    try:
        found: Any = yaml.load(text, Loader=_UniqueKeyLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        problems.add(
            str(path), f"is not YAML{line}: {getattr(error, 'problem', None) or 'unreadable'}"
        )
        return {}
    if not isinstance(found, dict) or "bots" not in found:
        problems.add(str(path), "needs the key bots with one entry per bot")
        return {}
    document = cast("dict[str, Any]", found)
    for key in document:
        if key != "bots":
            problems.add(f"{path}", f"unknown key {key!r}; the only known key is bots")
    bots: Any = document["bots"]
    if not isinstance(bots, dict) or not bots:
        problems.add(f"{path}: bots", "contains no bot: write a slug and its settings")
        return {}
    return {str(slug): entry for slug, entry in cast("dict[object, Any]", bots).items()}


def _check_unique_tokens(bots: list[Bot], problems: Problems) -> None:
    taken: dict[str, str] = {}
    for bot in bots:
        other = taken.setdefault(bot.id, bot.slug)
        if other != bot.slug:
            problems.add(
                f"bots.{bot.slug}",
                f"has the token of {other}: a bot has one webhook, so give it one slug",
            )


def _check_timeouts(bots: list[Bot], settings: Settings, problems: Problems) -> None:
    for bot in bots:
        if bot.in_queue and settings.stuck_timeout_s < bot.handler_timeout_s:
            problems.add(
                "QUEUE_STUCK_TIMEOUT",
                f"{settings.stuck_timeout_s:g} s is less than the timeout of bots.{bot.slug} "
                f"({bot.handler_timeout_s:g} s): its updates would be stopped while they run",
            )


def _check_auth_bot(bots: list[Bot], problems: Problems) -> None:
    if any(bot.handler is HandlerName.AUTH for bot in bots):
        return
    for bot in bots:
        if bot.require_auth:
            problems.add(
                f"bots.{bot.slug}.requireAuth",
                "needs a bot with handler: auth, where users open their session: add one, or write "
                "requireAuth: false",
            )
