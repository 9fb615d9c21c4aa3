"""Connections to the server: address, driver, pool, time limits, error mapping."""
