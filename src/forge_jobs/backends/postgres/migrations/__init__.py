"""Numbered forward migrations of the Postgres schema."""
