"""Whether a process may be started: not while its type is disabled, nor while there is a marker of its type and key.

The first costs nothing: settings are known (`store.lifecycle.preferences`). The second is one read, and only of types
that ask for markers. Whoever has read that there is none may start a process just as a marker is written: one more
instance fails then, as if it had been started a moment before.

Metrics: recovery_starts_refused by type and reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from recovery import metrics
from recovery.engine.end.marking import code_of
from recovery.engine.resources import Resources
from recovery.errors import StartRefused
from recovery.records import Marker, Process, TypeDisabled, given, marker_name
from recovery.wording import printable

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
    why = f", for {given.shown(disabled.reason)}" if disabled.reason else ""
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
