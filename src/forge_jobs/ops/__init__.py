"""Read models and operator actions, shared by the command line, Mission Control and the HTTP API.

``queries`` reads, ``why`` explains why a job does not run, ``actions`` changes jobs, queues and
workers, ``schedules``, ``declared_limits`` and ``rate_limits`` change theirs, ``doctor`` diagnoses,
``audit`` records who did what. Every module takes a Store; none imports a backend or the engine.
"""
