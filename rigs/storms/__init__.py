"""Storms: real workers and producers on one store, to whom faults happen at random instants.

``python -m rigs.storms`` runs it (``make storm``). Every actor appends what it does to a file of
its own; checkers read these histories and the final database, and never ask the code under test
whether it was right.
"""
