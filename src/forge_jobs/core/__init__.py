"""Rules without I/O: states and transitions, decisions about outcomes, retry, limits, cron, ids.

Nothing here reads a clock, draws random numbers, does I/O or imports from outside this package.
"""
