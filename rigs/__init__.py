"""Rigs that look for broken promises: simulation and storms. Ours, not in the wheel."""
