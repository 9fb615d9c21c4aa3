"""The memory backend: the executable specification of the store contracts.

Jobs are rows in dictionaries. Every transition is checked against ``core.status.TRANSITIONS``.
For tests, simulations and scripts: nothing survives the end of the process.
"""
