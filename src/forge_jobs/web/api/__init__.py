"""The HTTP API: one file per noun, each a list of typed routes, read by ``route``."""
