"""What every backend must do, as a pytest suite that any backend can run, also one of yours.

A backend's test module imports the suite and then says how to make a store::

    import pytest

    from forge_jobs.kit.entropy import SeededEntropy
    from forge_jobs.testing.conformance.all import *  # noqa: F403


    @pytest.fixture
    def make_store(clock, tmp_path):
        places = itertools.count()
        return lambda: MyStore(tmp_path / str(next(places)), clock=clock)

``make_store`` is required: each call gives a fresh store on a place of its own, not opened yet,
whose time is the ``clock`` fixture. Two more fixtures have defaults that the module may replace by
defining them after the import:

``clock``
    a ``forge_jobs.testing.clock.MovableClock``.
``second_store``
    for a store with ``capabilities.multi_process``: a callable that takes a store and gives another
    store object on the same place. The default is None.

The tests are asynchronous and need pytest-asyncio, in either of its modes. The suite asks
``capabilities``, never the name of a backend. Readings of the contracts that it fixes are written
in the docstrings of ``forge_jobs.store``.
"""

import pytest

_PARTS = (
    "bundle",
    "drivers",
    "fixtures",
    "jobs_bulk",
    "jobs_cancel",
    "jobs_carried",
    "jobs_dedupe",
    "jobs_due",
    "jobs_enqueue",
    "jobs_exchange",
    "jobs_fence",
    "jobs_liveness",
    "jobs_pages",
    "jobs_retention",
    "jobs_running",
    "jobs_throttle",
    "jobs_transitions",
    "jobs_walk",
    "ledger",
    "ledger_audit",
    "processes",
    "queues",
    "schedules",
    "settings",
    "shares",
    "timetable",
    "worker",
)

# Plain assert statements in an installed package would fail without saying what they compared.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))
