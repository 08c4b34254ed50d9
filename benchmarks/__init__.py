"""Measurements of Penstock beside what else could be done: `python -m benchmarks.run`."""
