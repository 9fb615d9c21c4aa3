"""Connections to a SQLite file, its writer and its reader."""
