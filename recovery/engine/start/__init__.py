"""Start of a process and its registration: its start task, its graph, and the message of that task."""
