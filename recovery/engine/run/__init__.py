"""Attempts at tasks: a slot claims tasks, calls their functions, and writes their results."""
