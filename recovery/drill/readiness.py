"""Who is there for a drill, and whether it may begin: looked at before anything is started.

It does not begin on a cluster of another version: canaries are obeyed by the workers' code and looked at by ours, and
nobody has tried two versions together. A worker tells its version with its heartbeats; that of the records is their
collections' validators and indexes.
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
    """The workers that live."""

    serving: tuple[Worker, ...]
    """Those that serve the canary."""
    others: tuple[Worker, ...] = ()
    """Those that serve actors, and not the canary."""

    def neighbours(self, worker_id: str) -> bool:
        """Whether others live on the machine of this worker."""
        hosts = {one.id: one.host for one in (*self.serving, *self.others)}
        host = hosts.get(worker_id, "")
        return bool(host) and any(hosts[one] == host for one in hosts if one != worker_id)


def muster(resources: Resources, *, kill: bool) -> Crew:
    """The workers of a cluster on which a drill may begin. Raises ServerUnavailable without a worker that serves the
    canary, OtherVersion on a cluster of another version, InputError where the canary is blocked, or where with `kill`
    nothing may be killed."""
    alive = resources.store.overview.workers_alive()
    where = f"database {resources.settings.database}"
    if not alive:
        raise ServerUnavailable(
            f"no worker lives in {where}: start one with `recovery worker --app package.module:name`, and a beat"
        )
    _check_version(resources, alive)
    serving = tuple(one for one in alive if CANARY in one.queues)
    if not serving:
        raise ServerUnavailable(
            f"none of {len(alive)} that live in {where} serves {CANARY}: start workers with RECOVERY_CANARY on, as it "
            "is by default"
        )
    if CANARY in resources.store.actors.blocked():
        raise InputError(f"{CANARY} is blocked, so no canary would begin: `recovery actor unblock {CANARY}`")
    if kill:
        _check_right(serving)
    return Crew(serving, tuple(one for one in alive if one.queues and one not in serving))


def _check_version(resources: Resources, alive: Iterable[Worker]) -> None:
    ours = library_version()
    if others := [one for one in alive if one.version != ours]:
        told = _named(f"{one.name} ({one.version or 'too old to tell its version'})" for one in others)
        raise OtherVersion(
            f"this is version {ours}, and there are workers of another: {told}; use the command of their version, or "
            "restart them with this one"
        )
    if missing := resources.store.layout.missing():
        raise OtherVersion(
            f"the collections in database {resources.settings.database} are not those of version {ours}: "
            f"{_named(missing)}; `recovery init` brings them up to date"
        )


def _check_right(serving: tuple[Worker, ...]) -> None:
    if without := [one for one in serving if not one.drill_kill]:
        raise InputError(
            f"--kill: these workers may not be killed by a drill: {_named(one.name for one in without)}; start them "
            f"with {RIGHT}=true where something starts them again"
        )
    if len(serving) < 2:
        raise InputError(
            f"--kill: {serving[0].name} is the only worker that serves {CANARY}, and without it nobody would recover "
            "anything: start another one"
        )


def _named(found: Iterable[str]) -> str:
    names = list(found)
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}"
