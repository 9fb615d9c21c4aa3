"""The caller's side: typed tasks, enqueueing from any kind of code, handles of stored jobs.

Knows the store by its contracts only; it never imports a backend or the engine.
"""
