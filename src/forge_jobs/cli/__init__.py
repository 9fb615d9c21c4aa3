"""The ``forge`` command.

``main`` dispatches: ``worker`` starts without the terminal libraries (typer, rich), ``commands``
holds all other commands. This package opens stores through ``app``, and reads and changes them
through ``ops``.
"""
