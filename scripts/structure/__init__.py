"""The parts of `python -m scripts.measure_structure`."""
