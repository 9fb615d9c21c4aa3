"""Deterministic simulation of the real engine with injected faults.

One event loop with virtual time and seeded scheduling runs several worker processes, a producer and
an operator, with faults between them and the store. The events are recorded as a history; checkers
read the history and the final store, never the engine. The same seed gives the same history.
"""
