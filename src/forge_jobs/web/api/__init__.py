"""The HTTP API: one file per resource, each a list of typed routes (``route.Routes``)."""
