"""What becomes of a start whose custom id a process of its type has already.

    the other, if it is broken → aborted → the other no longer has the custom id → the new one is saved with it

An aborted process gives up its custom id to whoever asks for it next. Cut off before the last step, nobody has it, and
the same start takes it. Of any number at once that replace the same process, one saves its own, and the others get that
one: each names in its guard the process that it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from recovery.engine.resources import Resources
from recovery.errors import CustomIdTaken, InputError, StoreDenied
from recovery.records import Process, ProcessState, given
from recovery.store import roles
from recovery.wording import printable

AbortReplaced = Callable[[Resources, Process, str], object]
"""Aborts a process that is still broken, for this reason, on record: an operator's work."""


class IfExists(StrEnum):
    """What is to be done where there is a process of this custom id, unless it is aborted: then a new one is started
    whatever is said here."""

    RETURN = "return"
    """That one is returned, whatever its state."""
    ERROR = "error"
    """CustomIdTaken is raised."""
    RESTART = "restart"
    """If it is broken its failed tasks are queued again. It is returned."""
    NEW_AFTER_END = "new_after_end"
    """If it has finished or is broken a new one is started in its place. While it runs it is returned."""


def checked(if_exists: object, custom_id: str | None) -> IfExists:
    """What is to be done, as a caller says it. Raises InputError."""
    if isinstance(if_exists, str) and if_exists in [*IfExists]:
        if custom_id is None and if_exists != IfExists.RETURN:
            raise InputError(
                f"if_exists={given.shown(if_exists)} is about the process of a custom_id; give one as well"
            )
        return IfExists(if_exists)
    allowed = ", ".join(one.value for one in IfExists)
    raise InputError(f"if_exists={given.shown(if_exists)}: give one of {allowed}")


def gives_up(there: Process, if_exists: IfExists | None) -> bool:
    """Whether the process that has the custom id may be replaced. None: it may not, whatever became of it."""
    if if_exists is None:
        return False
    replaced = [ProcessState.FINISHED, ProcessState.BROKEN] if if_exists is IfExists.NEW_AFTER_END else []
    return there.state in [ProcessState.ABORTED, *replaced]


def replace(resources: Resources, there: Process, by: Process, abort: AbortReplaced) -> None:
    """Take the custom id from a process that gives it up. Nothing is changed if it was set running since it was seen.

    One that is broken is aborted first: its tasks are not to be restarted beside its successor.
    """
    if there.state is ProcessState.BROKEN:
        reason = f"process {by.id} was started in its place, with the same custom id"
        with by_operator(there, IfExists.NEW_AFTER_END):
            abort(resources, there, reason)
    assert by.custom_id is not None
    resources.store.processes.give_up_custom_id(there.id, by.custom_id, by.id)


@contextmanager
def by_operator(there: Process, if_exists: IfExists) -> Iterator[None]:
    """Do in here what changes a broken process: an operator's work, which not everybody who starts processes may do.
    Raises StoreDenied, with nothing changed."""
    try:
        yield
    except StoreDenied as error:
        raise StoreDenied(
            f"process {there.id} has the custom_id {given.shown(there.custom_id)} and is {there.state}; what "
            f"if_exists={if_exists} does about it takes the role {roles.OPERATOR}, and {error}. Ask an operator for "
            "that, or come as a user who has it"
        ) from error


def already_taken(there: Process) -> CustomIdTaken:
    """The error for whoever wants none but a new process."""
    told = (
        f"process {there.id} of type {printable(there.type)} has the custom_id {given.shown(there.custom_id)} already"
    )
    return CustomIdTaken(f"{told}, and is {there.state}; if_exists says what else may be done then", there.id)
