"""The methods about a bot itself."""

from typing import Any, Final

from .call_parameters import CallParameters
from .world import FakeBot, Method, ReceivedCall


async def _get_me(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
    return {
        **bot.user,
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": True,
        "can_connect_to_business": False,
        "has_main_web_app": False,
    }


async def _set_commands(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
    bot.commands = given.array("commands") or []
    return True


async def _get_commands(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
    return bot.commands


async def _return_true(bot: FakeBot, given: CallParameters, call: ReceivedCall) -> Any:
    return True


PROFILE: Final[dict[str, Method]] = {
    "getme": _get_me,
    "setmycommands": _set_commands,
    "deletemycommands": _set_commands,
    "getmycommands": _get_commands,
    "close": _return_true,
    "logout": _return_true,
}
