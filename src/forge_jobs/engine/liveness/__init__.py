"""Keeps this process registered, leased and reachable, and shuts it down."""
