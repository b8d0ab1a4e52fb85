"""What an operator does about markers: look at them, and clear one.

A marker is cleared by one compare-and-set on the one that was seen. Nothing waits for that but schedules, whose next
slot looks for a marker by itself.
"""

from __future__ import annotations

from recovery.engine.lookup import hint
from recovery.engine.operators.auditing import audited, reason_of, who
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import Marker, given, marker_name

MAX_NAME = 1000
"""Characters of a name that is looked for: a type's and a key's together have less."""


def marker_of(resources: Resources, process_type: str, key: str | None) -> Marker | None:
    """The marker of a type and key, if there is one that is not cleared."""
    return resources.store.markers.find(marker_name(process_type, key))


def find_marker(resources: Resources, name: str) -> Marker:
    """The marker of this name, cleared or not. Raises InputError, which names one that is near, where there is none."""
    found = resources.store.markers.get(given.text(name, "name of the marker", longest=MAX_NAME))
    if found is None or (found.cleared_at is not None and not found.clearings):
        raise _unknown(resources, name)
    return found


def clear_marker(resources: Resources, name: str, reason: str, by: str | None = None) -> Marker:
    """Clear a marker: processes of its type and key are started again. As it was. Raises InputError where there is
    none, or somebody has cleared it already."""
    name, reason = given.text(name, "name of the marker", longest=MAX_NAME), reason_of(reason, "shown with the marker")
    with audited(resources, "marker clear", name, reason, by=by):
        return _clear(resources, name, reason, by)


def _clear(resources: Resources, name: str, reason: str, by: str | None) -> Marker:
    found = resources.store.markers.find(name)
    if found is not None and resources.store.markers.clear(name, found.written_at, by or who(), reason):
        return found
    # Somebody has cleared it. One that was written since then nobody has seen yet.
    cleared = resources.store.markers.get(name)
    if cleared is not None and cleared.clearings:
        last = cleared.clearings[-1]
        at = f" at {last.at:%Y-%m-%d %H:%M:%S} UTC" if last.at else ""
        again = "; there is another one since then" if cleared.cleared_at is None else ""
        told = f"marker {name!r} is cleared already,{at} by {last.by}: {last.reason}{again}; nothing was changed"
        raise InputError(told)
    raise _unknown(resources, name)


def _unknown(resources: Resources, name: str) -> InputError:
    names = [marker.id for marker in resources.store.markers.all()]
    return InputError(f"no marker is named {given.shown(name)}; {hint(name, names, 'there is none')}")
