"""The start of a worker, before it takes messages: wait for its servers, check them, and save what its application
declares.

A worker that starts while a server is away waits for the server, because a cluster may start in any order, and a
failover is not the worker's fault. If waiting does not help, the worker ends with one log line.

A worker does not start on a database that another application uses. Applications on one database would share its
queues: a worker of each would take the messages of every actor name that both have. So a worker saves its application's
name with its actors. Workers of earlier versions saved no name; their actors count for no application. Two applications
that start at the same moment find each other by a second check, after the names were saved.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence

from recovery.engine import Recovery, declare_schedules
from recovery.engine.resources import Queueing
from recovery.errors import RecoveryError, SettingsError, StoreDenied
from recovery.lazy_imports import load_all
from recovery.records.ids import CANARY
from recovery.retry.in_place import by_driver, call
from recovery.retry.own_work import WORKER_START
from recovery.store import Store, check_server, roles

log = logging.getLogger(__name__)

COLLECT_AFTER = 10_000
"""Number of new objects between two garbage collections."""
UNUSABLE = 2
"""Exit code of a worker that can't begin. All commands use it for errors."""
SHOWN = 8
"""Maximum number of another application's actors that the error names."""


def prepare_or_end(app: Recovery) -> None:
    """Wait for the servers, then `prepare`. If waiting does not help, log the reason in one line and end the worker."""
    try:
        wait_for_servers(lambda: prepare(app))
    except StoreDenied as error:
        log.critical("%s; a worker needs the role %s", error, roles.WORKER)
        raise SystemExit(UNUSABLE) from None
    except RecoveryError as error:
        log.critical("%s", error)
        raise SystemExit(UNUSABLE) from None


def check_spark(app: Recovery) -> None:
    """End a worker that is to drive Spark and can't, with one log line about what is missing."""
    from recovery.sweep import java

    try:
        java.check(app.settings.spark_master)
    except RecoveryError as error:
        log.critical("%s; only a worker that serves the queue spark needs it", error)
        raise SystemExit(UNUSABLE) from None


def prepare(app: Recovery) -> None:
    """Check the servers and the owner of the database, create collections, and save the actors' settings."""
    check_server(app.settings.mongo_uri)
    resources = app.resources
    resources.broker.check()
    resources.store.layout.create()
    save_actors(app)
    kinds = (actor.process_type for actor in app.actors.values())
    resources.store.process_types.save(kind for kind in kinds if kind is not None)
    declare_schedules(resources, app.actors, app.schedules)


def wait_for_servers(step: Callable[[], None], seconds: float | None = None) -> None:
    """Run a step, which must be safe to run twice, and retry it while a server is away. Then raise its last error.

    `seconds` limits the retries. The default of one minute suffices for a failover and for a server that reads its
    journal. Whoever runs workers starts them again after that. This runs in one thread before the worker does anything
    else, so no circuit breaker is needed.
    """
    request = WORKER_START.request("start of this worker", seconds=seconds)
    call(step, request, classified=by_driver)


def keep_what_is_imported() -> None:
    """Exclude all objects that exist now from garbage collection, because they stay.

    The processes of a pool share the memory of these objects with their parent, and a collection would copy it.
    Scanners also use less CPU time. Later objects are collected more often than in a command, which ends soon.
    """
    for owner in (Store, Queueing):
        load_all(owner)
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def save_actors(app: Recovery) -> None:
    """Save the settings of an application's actors under its name.

    Raises SettingsError if the database belongs to another application. Nothing is saved in this case, unless both
    applications start at the same moment.
    """
    check_database(app)
    actors = app.resources.store.actors
    preferences = [actor.preferences for actor in app.actors.values()]
    actors.save((settings for settings in preferences if settings.id != CANARY), application=app.name)
    actors.save(settings for settings in preferences if settings.id == CANARY)  # every application has the canary
    check_database(app)


def check_database(app: Recovery) -> None:
    """Raise SettingsError if an application that is not allowed to share the database has actors in it."""
    settings = app.settings
    known = app.resources.store.actors.applications()
    others = {name: known[name] for name in sorted(known) if name not in {app.name, *settings.shared_names}}
    if not others:
        return
    owners = "; ".join(f"{name} (actors {_joined_names(actors)})" for name, actors in others.items())
    first = next(iter(others))
    raise SettingsError(
        f"the database {settings.database} belongs to another application, {owners}, and this worker's is {app.name}: "
        f"they would take each other's tasks. Give {app.name} a database and a Redis of its own (RECOVERY_DATABASE, "
        "RECOVERY_BROKER_URL; for `recovery up` another RECOVERY_DATA_DIR). To let them share: "
        f"RECOVERY_SHARED_WITH={','.join(others)} here, and RECOVERY_SHARED_WITH={app.name} there. If it is the same "
        f'application under a new name: Recovery(name="{first}"). If {first} is gone for good: `recovery actor forget '
        "NAME` for each of its actors"
    )


def _joined_names(actors: Sequence[str]) -> str:
    more = f" and {len(actors) - SHOWN} more" if len(actors) > SHOWN else ""
    return ", ".join(actors[:SHOWN]) + more
