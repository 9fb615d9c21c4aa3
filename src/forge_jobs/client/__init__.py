"""The producer's side: typed tasks, enqueueing from sync and async code, handles of stored jobs.

It knows the store by its contracts only and never imports a backend or the engine.
"""
