"""A fake Bot API server: the common methods, Telegram's delivery rules, and a control API to act as
a user. For tests and demos; it keeps everything in memory.
"""

from .clocks import FastClock, LeapClock
from .faults import Fault
from .flood_control import FloodControl, FloodRate
from .server import fake_telegram, listen
from .telegram import FakeTelegram
from .world import Entry, FakeBot

__all__ = [
    "Entry",
    "FakeBot",
    "FakeTelegram",
    "FastClock",
    "Fault",
    "FloodControl",
    "FloodRate",
    "LeapClock",
    "fake_telegram",
    "listen",
]
