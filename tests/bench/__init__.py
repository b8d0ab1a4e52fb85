"""Benchmarks: `make bench`. Ratios are measured in one run, repeated, and told with their range.

Each module has `run(settings) -> rows`, on its own database of a real server.
"""
