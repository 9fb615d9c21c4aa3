"""The promises a backend makes: contracts without code.

``jobs`` holds the hot call, ``processes`` who is alive, ``queues`` what operators set,
``schedules`` what fires by time and rate, ``metrics`` what was counted, ``settings`` small named
values. ``bundle`` ties them together.
"""
