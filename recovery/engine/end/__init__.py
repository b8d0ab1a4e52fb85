"""Changes that end a process or have it done again: it breaks, or is aborted, removed or redone; and its result."""
