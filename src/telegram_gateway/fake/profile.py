"""The methods about a bot itself."""

from typing import Any, Final

from .call_parameters import CallParameters
from .world import Call, FakeBot, Method


async def _me(bot: FakeBot, given: CallParameters, call: Call) -> Any:
    return {
        **bot.user,
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": True,
        "can_connect_to_business": False,
        "has_main_web_app": False,
    }


async def _set_commands(bot: FakeBot, given: CallParameters, call: Call) -> Any:
    bot.commands = given.listed("commands") or []
    return True


async def _commands(bot: FakeBot, given: CallParameters, call: Call) -> Any:
    return bot.commands


async def _yes(bot: FakeBot, given: CallParameters, call: Call) -> Any:
    return True


PROFILE: Final[dict[str, Method]] = {
    "getme": _me,
    "setmycommands": _set_commands,
    "deletemycommands": _set_commands,
    "getmycommands": _commands,
    "close": _yes,
    "logout": _yes,
}
