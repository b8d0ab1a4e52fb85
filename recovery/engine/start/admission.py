"""What becomes of a start whose custom id a process of its type has already.

    the other, if it is broken → aborted → the other no longer has the custom id → the new one is saved with it

An aborted process gives up its custom id to whoever asks for it next. Cut off before the last step, nobody has it, and
the same start takes it. Of any number at once that replace the same process, one saves its own, and the others get that
one: each names in its guard the process that it saw.

Before that it is asked whether a process may be started at all: not while its type is disabled, nor while there is a
marker of its type and key. The first costs nothing: settings are known (`store.lifecycle.preferences`). The second is
one read, and only of types that ask for markers. Whoever has read that there is none may start a process just as a
marker is written: one more instance fails then, as if it had been started a moment before.

Metrics: recovery_starts_refused by type and reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from recovery import metrics
from recovery.engine.end.breaking import code_of
from recovery.engine.resources import Resources
from recovery.errors import CustomIdTaken, InputError, StartRefused, StoreDenied
from recovery.records import Marker, Process, ProcessState, TypeDisabled, given, marker_name
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


FAILED_ADMIN, DISABLED = "FAILED_ADMIN", "DISABLED"
"""Reasons: as Hive's metrics call what waits for an administrator; an operator's word."""
SHOWN = 200
"""Characters of an error's message that a refusal repeats."""


def check_start(resources: Resources, process: Process, markers: bool, *, replacing: bool = False) -> None:
    """Raise StartRefused for a process that is about to be started and may not be, and count it. `markers`: its type
    asks for them.

    One whose custom id is taken may, unless it is about to replace who has it: it is not started again.
    """
    _raise_unless_there(resources, process, _refusal(resources, process, markers), replacing=replacing)


def checking(resources: Resources, markers: bool) -> Callable[[Process], None]:
    """The same for many of one type that are started together: of each key it is asked once."""
    known: dict[str | None, StartRefused | None] = {}

    def check(process: Process) -> None:
        if process.key not in known:
            known[process.key] = _refusal(resources, process, markers)
        _raise_unless_there(resources, process, known[process.key])

    return check


def _raise_unless_there(
    resources: Resources, process: Process, refused: StartRefused | None, *, replacing: bool = False
) -> None:
    if refused is None:
        return
    custom_id = None if replacing else process.custom_id
    if custom_id is not None and resources.store.process_names.is_taken(process.type, custom_id):
        return
    metrics.STARTS_REFUSED.labels(refused.process_type, refused.reason).inc()
    raise refused


def _refusal(resources: Resources, process: Process, markers: bool) -> StartRefused | None:
    if (disabled := resources.store.preferences.disabled(process.type)) is not None:
        return _of_disabled(process.type, disabled)
    marker = resources.store.markers.find(marker_name(process.type, process.key)) if markers else None
    return _of_marker(marker) if marker is not None else None


def _of_disabled(name: str, disabled: TypeDisabled) -> StartRefused:
    since = f" since {disabled.at:%Y-%m-%d %H:%M:%S} UTC" if disabled.at else ""
    by = f" by {disabled.by}" if disabled.by else ""
    why = f", for {_short(disabled.reason)!r}" if disabled.reason else ""
    told = f"process type {name} is disabled{since}{by}{why}; nothing was started"
    return StartRefused(f"{told}. `recovery process-type enable {name}` has it started again", name, DISABLED)


def _of_marker(marker: Marker) -> StartRefused:
    code = code_of(marker.code)
    since = f", since {marker.written_at:%Y-%m-%d %H:%M:%S} UTC" if marker.written_at else ""
    broke = f"process {marker.process} broke with code {code}, {marker.kind}: {_short(marker.message)}"
    cure = f"Once that is put right: {clear_command(marker.id)}"
    told = f"there is a marker {printable(marker.id)}{since}: {broke}. Nothing was started. {cure}"
    return StartRefused(told, marker.type, FAILED_ADMIN, marker.id, code)


def clear_command(name: str) -> str:
    """What clears a marker, as a shell takes it."""
    return f"`recovery marker clear {shlex.quote(name)} --reason ...`"


def _short(message: Any) -> str:
    text = " ".join(str(message).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
