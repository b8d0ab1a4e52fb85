"""Checks before a drill: which workers serve canaries, and whether the drill may begin.

A drill does not begin on a cluster of another version. The workers' code runs the canaries and our code reads their
records, and two versions are not tested together. A worker reports its version with its heartbeats. The version of the
records shows in the validators and indexes of their collections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recovery.engine import Resources
from recovery.errors import InputError, OtherVersion, ServerUnavailable
from recovery.installed import library_version
from recovery.records import Worker
from recovery.records.ids import CANARY

MAX_NAMED = 5
RIGHT = "RECOVERY_DRILL_KILL"


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers that are alive."""

    serving: tuple[Worker, ...]
    """Workers that serve the canary."""
    others: tuple[Worker, ...] = ()
    """Workers that serve other actors only."""

    def neighbours(self, worker_id: str) -> bool:
        """Return whether other workers live on the machine of this worker."""
        hosts = {worker.id: worker.host for worker in (*self.serving, *self.others)}
        host = hosts.get(worker_id, "")
        return bool(host) and any(hosts[other_id] == host for other_id in hosts if other_id != worker_id)


def muster(resources: Resources, *, kill: bool) -> Crew:
    """Return the workers of a cluster on which a drill may begin.

    Args:
        resources: The databases of the cluster.
        kill: Whether the drill kills a pool process and a worker.

    Raises:
        ServerUnavailable: No live worker serves the canary.
        OtherVersion: The cluster has another version.
        InputError: The canary is blocked, or `kill` is set and nothing may be killed.
    """
    alive = resources.store.overview.workers_alive()
    where = f"database {resources.settings.database}"
    if not alive:
        raise ServerUnavailable(
            f"no worker is alive in {where}: start one with `recovery worker --app package.module:name`, and a beat"
        )
    _check_version(resources, alive)
    serving = tuple(worker for worker in alive if CANARY in worker.queues)
    if not serving:
        raise ServerUnavailable(
            f"none of the {len(alive)} live workers in {where} serves {CANARY}: start workers with "
            "RECOVERY_CANARY on, which is the default"
        )
    if CANARY in resources.store.actors.blocked():
        raise InputError(f"{CANARY} is blocked, so no canary would begin: `recovery actor unblock {CANARY}`")
    if kill:
        _check_right(serving)
    return Crew(serving, tuple(worker for worker in alive if worker.queues and worker not in serving))


def _check_version(resources: Resources, alive: Iterable[Worker]) -> None:
    ours = library_version()
    if others := [worker for worker in alive if worker.version != ours]:
        other_versions = _listed(
            f"{worker.name} ({worker.version or 'too old to report its version'})" for worker in others
        )
        raise OtherVersion(
            f"this is version {ours}, and some workers have another version: {other_versions}; use the command of "
            "their version, or restart them with this version"
        )
    if missing := resources.store.layout.missing():
        raise OtherVersion(
            f"the collections in database {resources.settings.database} are not those of version {ours}: "
            f"{_listed(missing)}; `recovery init` brings them up to date"
        )


def _check_right(serving: tuple[Worker, ...]) -> None:
    if protected := [worker for worker in serving if not worker.drill_kill]:
        raise InputError(
            f"--kill: these workers may not be killed by a drill: {_listed(worker.name for worker in protected)}; "
            f"start them with {RIGHT}=true where something restarts them"
        )
    if len(serving) < 2:
        raise InputError(
            f"--kill: {serving[0].name} is the only worker that serves {CANARY}, and without it no worker would "
            "recover anything: start another worker"
        )


def _listed(texts: Iterable[str]) -> str:
    names = list(texts)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
