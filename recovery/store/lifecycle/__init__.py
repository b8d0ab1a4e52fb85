"""Queries and updates for the life of a task, by collection.

`processes`, `tasks`, `graphs` and `decisions` (with `requeues` for many decisions at once); `workers`, for what workers
report about themselves; `actors` and `preferences`, for the settings of actors and process types.
"""
