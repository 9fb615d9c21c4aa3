"""The executable specification: jobs in plain dictionaries, every move checked against the table.

For tests, simulations and scripts; nothing survives the end of the process.
"""
