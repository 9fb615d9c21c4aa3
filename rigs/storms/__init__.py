"""Storms: fault injection tests with real worker and producer processes on one store.

``python -m rigs.storms`` runs them (``make storm``). Every process appends what it does to a
history file of its own. The checks read these histories and the final database; they do not use the
code under test.
"""
