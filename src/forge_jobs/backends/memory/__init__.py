"""The memory backend: the row-wise rules of ``backends.shared.rowwise`` over dictionaries.

For tests, simulations and scripts: nothing survives the end of the process.
"""
