"""The commands of operators for running and broken processes.

They restart, redo and abort processes, block actors, disable process types, set settings over those of the code, change
schedules and saved searches, clear markers, and forget an actor that is gone. Each command checks its arguments first,
and is recorded in the audit log. A command that was cut off can be given again.
"""
