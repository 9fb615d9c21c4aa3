"""The kill storm: real workers and producers on one SQLite file, killed at random instants.

``python -m tests.storm`` runs it (``make storm``). Every actor appends what it does to a file of
its own; checkers read these histories and the final database, and never ask the code under test
whether it was right.
"""
