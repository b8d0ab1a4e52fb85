"""Keeps applications of different names apart: a worker does not start on a database that another application uses.

Applications on one database share its queues: a worker of each takes the messages of every actor that both know by
name. A worker saves its application's name with its actors. Names of workers of earlier versions are absent, and those
actors count for nobody. Who starts at the same moment is found by a second look, after the names were saved.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.drill.orders import CANARY
from recovery.engine import Recovery
from recovery.errors import SettingsError

SHOWN = 8
"""Actors of another application that the error names."""


def save_actors(app: Recovery) -> None:
    """Save the settings of an application's actors under its name. Raises SettingsError, with nothing saved, if the
    database is another application's."""
    check_database(app)
    actors = app.resources.store.actors
    preferences = [actor.preferences for actor in app.actors.values()]
    actors.save((one for one in preferences if one.id != CANARY), application=app.name)
    actors.save(one for one in preferences if one.id == CANARY)  # every application has it
    check_database(app)


def check_database(app: Recovery) -> None:
    """Raise SettingsError if an application that is not allowed to share the database has actors in it."""
    settings = app.settings
    known = app.resources.store.actors.applications()
    others = {name: known[name] for name in sorted(known) if name not in {app.name, *settings.shared_names}}
    if not others:
        return
    told = "; ".join(f"{name} (actors {_shown(actors)})" for name, actors in others.items())
    first = next(iter(others))
    raise SettingsError(
        f"the database {settings.database} belongs to another application, {told}, and this worker's is {app.name}: "
        f"they would take each other's tasks. Give {app.name} a database and a Redis of its own (RECOVERY_DATABASE, "
        "RECOVERY_BROKER_URL; for `recovery up` another RECOVERY_DATA_DIR). To let them share: "
        f"RECOVERY_SHARED_WITH={','.join(others)} here, and RECOVERY_SHARED_WITH={app.name} there. If it is the same "
        f'application under a new name: Recovery(name="{first}"). If {first} is gone for good: `recovery actor forget '
        "NAME` for each of its actors"
    )


def _shown(actors: Sequence[str]) -> str:
    more = f" and {len(actors) - SHOWN} more" if len(actors) > SHOWN else ""
    return ", ".join(actors[:SHOWN]) + more
