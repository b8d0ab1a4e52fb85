"""Which versions of an application live, and which of them is the newest. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from recovery.records import Worker

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """A version of an application that at least one live worker has."""

    application: str | None
    """None: of workers that do not record it."""
    version: str | None
    """None: of workers that do not record it. They count as a version of their own."""
    workers: tuple[str, ...]
    """Names of the live workers that have it."""
    registered_at: datetime | None
    """When the last of these workers registered, by the database's clock."""
    is_newest: bool
    """Whether it is the version of the application's worker that registered last. This is an order of registration:
    after a rollback the version that was rolled back to is the newest."""


def live_versions(alive: Iterable[Worker]) -> list[LiveVersion]:
    """Return the versions of these live workers, by application, the newest first. Workers that serve no actor, as
    those for sweeps, count as well."""
    grouped: dict[tuple[str | None, str | None], list[Worker]] = defaultdict(list)
    for worker in alive:
        grouped[worker.application, worker.application_version].append(worker)
    newest: dict[str | None, tuple[datetime, str]] = {}
    registered = {key: max(_order(worker) for worker in some) for key, some in grouped.items()}
    for (application, _), last in registered.items():
        newest[application] = max(newest.get(application, (_NEVER, "")), last)
    found = [
        LiveVersion(
            application=application,
            version=version,
            workers=tuple(sorted(worker.name for worker in grouped[application, version])),
            registered_at=last[0] if last[0] != _NEVER else None,
            is_newest=last == newest[application],
        )
        for (application, version), last in registered.items()
    ]
    found.sort(key=lambda one: one.registered_at or _NEVER, reverse=True)
    return sorted(found, key=lambda one: one.application or "")


def _order(worker: Worker) -> tuple[datetime, str]:
    """The moment of registration. Ids decide between workers of the same millisecond, so that one version is the
    newest."""
    return worker.started_at or _NEVER, worker.id
