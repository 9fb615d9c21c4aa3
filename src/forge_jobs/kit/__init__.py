"""Ports to the outside world that all rooms share: clock, random numbers, service loop, I/O thread,
hooks, logging, redaction of secrets, child processes.

Nothing in this package knows what a job is.
"""
