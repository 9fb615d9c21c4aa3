"""Measurements of Forge Jobs beside its peers, in one run and on one machine.

`python -m benchmarks` runs everything and prints a table of targets. The package is a
developer's tool: nothing in `forge_jobs` imports it. How to read the table:
`docs/benchmarks.md`.
"""
