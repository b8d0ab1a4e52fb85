"""Traces: what spans there are, and that they never stop anything."""
