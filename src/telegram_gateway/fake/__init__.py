"""A Bot API server of one's own: the methods a bot needs, Telegram's rules of delivery, and a side
door to act as a user. For tests and for trying things out; it keeps everything in memory.
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
