"""The conformance suite: pytest tests of the store contracts, for every backend, also one of yours.

A backend's test module imports the suite and defines how to make a store::

    import itertools

    import pytest

    from forge_jobs.testing.conformance.all import *  # noqa: F403


    @pytest.fixture
    def make_store(clock, tmp_path):
        numbers = itertools.count()
        return lambda: MyStore(tmp_path / str(next(numbers)), clock=clock)

``make_store`` is required: each call returns a new store on a database of its own, not opened yet,
whose store clock is the ``clock`` fixture. Three more fixtures have defaults that the module may
replace by defining them after the import:

``clock``
    a ``forge_jobs.testing.clock.MovableClock``.
``second_store``
    for a store with ``capabilities.multi_process``: a callable that takes a store and returns
    another store object on the same database. The default is None.
``open_transaction``
    for a store that joins transactions of users: a callable that takes a store and returns an
    asynchronous context manager, which gives a connection or session in an open transaction on the
    same database. It commits at the end of its block and rolls back after an exception. The default
    is None.

The tests are asynchronous and need pytest-asyncio, in either of its modes. The suite reads
``capabilities``, never the name of a backend. The rules it checks are the docstrings of
``forge_jobs.store``.
"""

import pkgutil

import pytest

# Plain assert statements in an installed package would fail without saying what they compared.
# The list is read from the package's own files, so that a new part cannot be missing from it.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)
