"""The real engine in a faulty world that repeats itself.

One event loop with virtual time and seeded order carries several worker processes, a producer, an
operator and the faults between them and the store. What happened is a history; checkers read the
history and the final store and never ask the engine. The same seed gives the same history.
"""
