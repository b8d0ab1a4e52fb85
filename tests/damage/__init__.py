"""Damaged records of all collections, in batches, in a real cluster."""
