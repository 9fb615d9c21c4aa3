"""Connections, the writer and the reader of a SQLite file."""
