"""What users hold, and what runs for them: `actor` (a function under a name, and `schedule`), `context` (the attempt
that the current thread runs, its children and heartbeats), `resolve` (arguments with the values that were promised)
and `call` (the function itself, its value or its error). `log_context` tells logs which attempt speaks. Nothing here
decides where a task goes next.
"""
