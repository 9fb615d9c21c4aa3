"""Functions of the server, in versioned sets; see ``postgres/function_sets.py``."""
