"""The ``forge`` command.

``main`` chooses; ``worker`` starts without the libraries that draw tables, everything else is built
in ``commands``. This room reaches stores through ``app`` and acts through ``ops``.
"""
