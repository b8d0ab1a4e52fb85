"""A process by the id that a caller gives. What is no text is not looked up: to MongoDB it might be a query."""

from __future__ import annotations

from recovery.engine.resources import Resources
from recovery.errors import ProcessNotFound
from recovery.records import Process, given
from recovery.records.ids import is_process_id


def find_process(resources: Resources, process_id: str) -> Process:
    """The process of this id, of whatever form: others may have made it; briefly, as a majority has it.

    Raises ProcessNotFound, and InputError for what is no text.
    """
    process = resources.store.processes.find_committed(given.text(process_id, "process_id"))
    if process is None:
        raise not_found(resources, process_id)
    return process


def not_found(resources: Resources, process_id: str) -> ProcessNotFound:
    """The error for an id that no process has."""
    form = "" if is_process_id(process_id) else "; an id has 32 hex digits, as `start` gives it"
    where = f"database {resources.settings.database}"
    return ProcessNotFound(f"no process has the id {given.shown(process_id)} in {where}{form}")
