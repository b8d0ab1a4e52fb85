"""Attempts at tasks: claimed, called, and their ends written."""
