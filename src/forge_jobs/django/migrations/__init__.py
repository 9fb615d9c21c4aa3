"""Migrations of the model without a table: its permissions."""
