"""Attempts at tasks: they are claimed, their functions are called, and their ends are written."""
