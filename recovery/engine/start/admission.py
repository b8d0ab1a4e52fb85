"""Decides whether a process may be started, and what happens if a process of its type already has its custom id.

    the other process, if it is broken → aborted → it loses the custom id → the new process is saved with it

An aborted process gives up its custom id to the next start that asks for it. If a start is cut off before the last
step, nobody has the custom id, and the same start takes it when it is repeated. If several starts replace the same
process at once, one saves its process and the others get that process, because each names in its guard the process that
it saw.

First of all, a start is refused while its process type is disabled, or while a marker of its type and key exists. The
first check costs nothing, because settings are cached (`store.lifecycle.preferences`). The second is one read, and only
for types that ask for markers. A start may have seen no marker just before one is written. Then one more instance
fails, as if it had been started a moment earlier.

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
"""Aborts a process if it is still broken, for the given reason. It is an operator's command, and is recorded in the
audit log."""


class IfExists(StrEnum):
    """What a start does if a process has its custom id. If that process is aborted, a new one is started in any
    case."""

    RETURN = "return"
    """Return that process, whatever its state."""
    ERROR = "error"
    """Raise CustomIdTaken."""
    RESTART = "restart"
    """Return that process. If it is broken, requeue its failed tasks."""
    NEW_AFTER_END = "new_after_end"
    """If that process has finished or is broken, start a new one in its place. While it runs, return it."""


def checked(if_exists: object, custom_id: str | None) -> IfExists:
    """Return `if_exists` as an IfExists. Raise InputError for an invalid value, or a value that needs a custom id."""
    if isinstance(if_exists, str) and if_exists in [*IfExists]:
        if custom_id is None and if_exists != IfExists.RETURN:
            raise InputError(
                f"if_exists={given.shown(if_exists)} is about the process of a custom_id; give one as well"
            )
        return IfExists(if_exists)
    allowed = ", ".join(choice.value for choice in IfExists)
    raise InputError(f"if_exists={given.shown(if_exists)}: give one of {allowed}")


def gives_up(there: Process, if_exists: IfExists | None) -> bool:
    """Return whether the process that has the custom id may be replaced. With None, it may not, whatever its state."""
    if if_exists is None:
        return False
    replaced = [ProcessState.FINISHED, ProcessState.BROKEN] if if_exists is IfExists.NEW_AFTER_END else []
    return there.state in [ProcessState.ABORTED, *replaced]


def replace(resources: Resources, there: Process, by: Process, abort: AbortReplaced) -> None:
    """Take the custom id from a process that may be replaced. Nothing changes if it was set running since it was read.

    A broken process is aborted first, so that its tasks can't be restarted next to its successor.

    Args:
        resources: Connections.
        there: The process that has the custom id.
        by: The new process.
        abort: Aborts the broken process.
    """
    if there.state is ProcessState.BROKEN:
        reason = f"process {by.id} was started in its place, with the same custom id"
        with by_operator(there, IfExists.NEW_AFTER_END):
            abort(resources, there, reason)
    assert by.custom_id is not None
    resources.store.processes.give_up_custom_id(there.id, by.custom_id, by.id)


@contextmanager
def by_operator(there: Process, if_exists: IfExists) -> Iterator[None]:
    """Explain a refused change of a broken process: it needs the role of an operator, which not every client has.

    Raises:
        StoreDenied: The database user lacks the role. Nothing was changed.
    """
    try:
        yield
    except StoreDenied as error:
        raise StoreDenied(
            f"process {there.id} has the custom_id {given.shown(there.custom_id)} and is {there.state}; what "
            f"if_exists={if_exists} does needs the role {roles.OPERATOR}, and {error}. Ask an operator to do it, or "
            "connect as a user who has the role"
        ) from error


def already_taken(there: Process) -> CustomIdTaken:
    """Return the error for a start that accepts only a new process."""
    message = (
        f"process {there.id} of type {printable(there.type)} has the custom_id {given.shown(there.custom_id)} already"
    )
    return CustomIdTaken(f"{message}, and is {there.state}; if_exists selects what else a start does then", there.id)


FAILED_ADMIN, DISABLED = "FAILED_ADMIN", "DISABLED"
"""Reasons of refusals. FAILED_ADMIN, named as in Hive's metrics: a marker waits for an administrator. DISABLED: an
operator disabled the type."""
SHOWN = 200
"""Maximum characters of an error's message that a refusal repeats."""


def check_start(resources: Resources, process: Process, markers: bool, *, replacing: bool = False) -> None:
    """Raise StartRefused, and count it, if a process must not be started.

    A process whose custom id is taken is not refused, because it is not started again. It is refused if it would
    replace the process that has the custom id.

    Args:
        resources: Connections.
        process: The process to start.
        markers: Whether its type asks for markers.
        replacing: Whether it is about to replace the process that has its custom id.
    """
    _raise_unless_there(resources, process, _refusal(resources, process, markers), replacing=replacing)


def checking(resources: Resources, markers: bool) -> Callable[[Process], None]:
    """Return a `check_start` for many processes of one type that are started together. It reads the marker of each key
    once."""
    refusals: dict[str | None, StartRefused | None] = {}

    def check(process: Process) -> None:
        if process.key not in refusals:
            refusals[process.key] = _refusal(resources, process, markers)
        _raise_unless_there(resources, process, refusals[process.key])

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
    message = f"process type {name} is disabled{since}{by}{why}; nothing was started"
    return StartRefused(f"{message}. `recovery process-type enable {name}` allows starts again", name, DISABLED)


def _of_marker(marker: Marker) -> StartRefused:
    code = code_of(marker.code)
    since = f", since {marker.written_at:%Y-%m-%d %H:%M:%S} UTC" if marker.written_at else ""
    broke = f"process {marker.process} broke with code {code}, {marker.kind}: {_short(marker.message)}"
    cure = f"Once that is put right: {clear_command(marker.id)}"
    message = f"there is a marker {printable(marker.id)}{since}: {broke}. Nothing was started. {cure}"
    return StartRefused(message, marker.type, FAILED_ADMIN, marker.id, code)


def clear_command(name: str) -> str:
    """Return the command that clears a marker, quoted for a shell."""
    return f"`recovery marker clear {shlex.quote(name)} --reason ...`"


def _short(message: Any) -> str:
    text = " ".join(str(message).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
