"""For tests of jobs and of backends: time that moves on request, and the conformance suite.

Nothing in the package imports this room. ``forge_jobs.testing.conformance`` is what a backend must
pass, and the only part that needs pytest.
"""
