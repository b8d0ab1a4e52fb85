"""Actors as users see them, and the call of their functions.

`actor` is a function under a name, with the method `schedule`. `context` is the attempt that the current thread runs,
with its children and heartbeats. `resolve` puts values in the place of promises in arguments. `call` calls the
function, and returns its value or error. `log_context` adds the attempt to log records. Nothing here decides where a
task goes next.
"""
