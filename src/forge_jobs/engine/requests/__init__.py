"""Turns a kind and a payload into a stored job."""
