"""Loaded at interpreter start: shifts the wall clock by the offset that a file holds."""

import os
import time

_FILE = os.environ["WRONG_CLOCK"]
_true_ns, _true_of, _true_ns_of = time.time_ns, time.clock_gettime, time.clock_gettime_ns


def _offset_ns() -> int:
    with open(_FILE) as file:
        return int(file.read()) * 1_000_000_000


def _time_ns() -> int:
    return _true_ns() + _offset_ns()


def _time() -> float:
    return _time_ns() / 1e9


def _clock_gettime_ns(clk_id: int, /) -> int:
    return _time_ns() if clk_id == time.CLOCK_REALTIME else _true_ns_of(clk_id)


def _clock_gettime(clk_id: int, /) -> float:
    return _time() if clk_id == time.CLOCK_REALTIME else _true_of(clk_id)


time.time, time.time_ns = _time, _time_ns
time.clock_gettime, time.clock_gettime_ns = _clock_gettime, _clock_gettime_ns
