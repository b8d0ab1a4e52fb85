"""Operators' commands for markers: look at a marker, and clear it.

A marker is cleared by one compare-and-set on the marker that was read. Nothing else has to be changed: a schedule that
the marker disabled notices it by itself when it is due next.
"""

from __future__ import annotations

from recovery.engine.lookup import hint
from recovery.engine.operators.auditing import audited, reason_of, who
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import Marker, given, marker_name

MAX_NAME = 1000
"""Maximum characters of a marker's name in a request. A type and a key together have fewer."""


def marker_of(resources: Resources, process_type: str, key: str | None) -> Marker | None:
    """Return the marker of a process type and key, or None if there is none or it is cleared."""
    return resources.store.markers.find(marker_name(process_type, key))


def find_marker(resources: Resources, name: str) -> Marker:
    """Return the marker with this name, even if it is cleared. Raise InputError, with a similar name as a suggestion,
    if no marker has this name."""
    marker = resources.store.markers.get(given.text(name, "name of the marker", longest=MAX_NAME))
    if marker is None or (marker.cleared_at is not None and not marker.clearings):
        raise _unknown(resources, name)
    return marker


def clear_marker(resources: Resources, name: str, reason: str, by: str | None = None) -> Marker:
    """Clear a marker, so that processes of its type and key can be started again. Return the marker as it was.

    Raises:
        InputError: There is no marker with this name, it is cleared already, or the reason is empty.
    """
    name, reason = given.text(name, "name of the marker", longest=MAX_NAME), reason_of(reason, "shown with the marker")
    with audited(resources, "marker clear", name, reason, by=by):
        return _clear(resources, name, reason, by)


def _clear(resources: Resources, name: str, reason: str, by: str | None) -> Marker:
    marker = resources.store.markers.find(name)
    if marker is not None and resources.store.markers.clear(name, marker.written_at, by or who(), reason):
        return marker
    # Somebody else has cleared it. A marker that was written since then is new to the operator, so it stays.
    cleared = resources.store.markers.get(name)
    if cleared is not None and cleared.clearings:
        last = cleared.clearings[-1]
        at = f" at {last.at:%Y-%m-%d %H:%M:%S} UTC" if last.at else ""
        new_marker = "; a new marker was written since then" if cleared.cleared_at is None else ""
        message = (
            f"marker {name!r} is cleared already,{at} by {last.by}: {last.reason}{new_marker}; nothing was changed"
        )
        raise InputError(message)
    raise _unknown(resources, name)


def _unknown(resources: Resources, name: str) -> InputError:
    names = [marker.id for marker in resources.store.markers.all()]
    return InputError(f"no marker is named {given.shown(name)}; {hint(name, names, 'there is none')}")
