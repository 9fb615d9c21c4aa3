"""Every statement of the SQLite backend, as named blocks that ``backends.sqltext`` reads."""
