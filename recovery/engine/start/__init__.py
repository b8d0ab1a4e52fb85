"""Start of a process, and its registration: its first task, its graph, and that task's message."""
