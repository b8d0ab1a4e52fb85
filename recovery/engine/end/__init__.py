"""Ends of processes beside the regular one: broken, aborted, done again, removed; and who waits for an end."""
