"""Versions of applications: which of them live, and which tasks wait for a worker of another version.

A task waits if the code of the workers that claimed it does not accept its call (`calls`), or if it is pinned to a
version that no live worker runs (`pins`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem, unread, warning
from recovery.records import UNTAKEN_DECISIONS, Decision, Worker
from recovery.records.preferences import SAME_VERSION
from recovery.store.views.waiting_tasks import INDEX, PinnedTasks, RefusedTasks
from recovery.wording import count, show_duration

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


def pinned_in_vain(resources: Resources, decisions: Iterable[Decision]) -> dict[str, str]:
    """Return what tasks wait for that are pinned to a version which no live worker runs, by the ids of their decisions.
    Asks MongoDB only if there are pinned tasks that wait."""
    waiting = [one for one in decisions if one.pinned_to is not None and one.state in UNTAKEN_DECISIONS]
    return judge_decisions(waiting, resources.store.overview.workers_alive()) if waiting else {}


def judge_decisions(waiting: Iterable[Decision], alive: Sequence[Worker]) -> dict[str, str]:
    """The same of these pinned tasks and these workers. An actor that no worker serves at all is reported as such."""
    found: dict[str, str] = {}
    for one in waiting:
        serving = [worker for worker in alive if one.actor in worker.queues]
        if one.pinned_to is not None and serving and not any(worker.may_run(one.pinned_to) for worker in serving):
            found[one.id] = (
                f"pinned to version {one.pinned_to}, and no live worker that serves {one.actor} runs it: "
                f"{advice(one.pinned_to, f'`recovery abort {one.process_id}`')}"
            )
    return found


def advice(version: str, abort: str) -> str:
    """Return what to do about processes that are pinned to a version which no live worker runs. `abort` is the command
    that aborts them."""
    return (
        f"start a worker of version {version}, or one whose code declares itself compatible, "
        f'Recovery(compatible_with=["{version}"]), or abort: {abort}'
    )


def pins(resources: Resources) -> Check:
    """Each version to which tasks are pinned that could be run now has a live worker, and all live workers heed pins.
    Costs the tasks that were given back for their pins."""
    if f"index decisions.{INDEX}" in resources.store.layout.missing():
        return unread("pins", f"the index decisions.{INDEX}")
    store = resources.store
    types = sorted(name for name, kind in store.process_types.all().items() if kind.versions == SAME_VERSION)
    return judge_pins(types, store.refusals.pinned(), store.overview.workers_alive())


def judge_pins(types: Sequence[str], pinned: Sequence[PinnedTasks], alive: Sequence[Worker]) -> Check:
    """Return what it means that workers gave back these tasks for their pins. `types` are the pinned process types."""
    lonely = [one for one in pinned if not any(_may_run(worker, one) for worker in alive)]
    if lonely:
        version = lonely[0].pinned_to
        found = f"pinned to a version that no live worker runs: {join_names(map(_told, lonely))}"
        abort = f"`recovery operation start abort 'pinned:{version} state:running' --reason ...`"
        return problem("pins", Cause.PINNED_UNSERVED, found, advice(version, abort))
    deaf = [worker.name for worker in alive if worker.application_version is None and worker.queues]
    if types and deaf:
        found = f"{join_names(types)} {'is' if len(types) == 1 else 'are'} pinned, and {join_names(deaf)} heed no pins"
        todo = "upgrade Recovery Workers there: until then they run tasks of every version"
        return warning("pins", Cause.PINS_IGNORED, found, todo)
    return ok("pins", f"heeded for {join_names(types)}" if types else "no process type is pinned")


def _may_run(worker: Worker, tasks: PinnedTasks) -> bool:
    return tasks.actor in worker.queues and worker.may_run(tasks.pinned_to)


def _told(tasks: PinnedTasks) -> str:
    return f"{tasks.actor}, version {tasks.pinned_to} ({count(tasks.tasks, 'task')}, one of process {tasks.process_id})"


def calls(resources: Resources) -> Check:
    """No task waits for a newer worker. Costs the tasks that do."""
    if f"index decisions.{INDEX}" in resources.store.layout.missing():
        return unread("calls", f"the index decisions.{INDEX}")
    return judge_calls(resources.store.refusals.by_actor(), resources.settings.version_grace)


def judge_calls(refused: Sequence[RefusedTasks], grace: float) -> Check:
    """Return what it means that these tasks wait for a newer worker."""
    if not refused:
        return ok("calls", "no task waits for a newer worker")
    tasks = sum(one.tasks for one in refused)
    found = f"{count(tasks, 'task')} {'waits' if tasks == 1 else 'wait'} for a newer worker: "
    found += join_names(map(_refused, refused))
    advice = (
        "start workers with the version that accepts these calls: first the workers that have the called actors, then "
        f"whoever calls them. A task fails if all live workers' versions have refused it for {show_duration(grace)} "
        "(RECOVERY_VERSION_GRACE)"
    )
    return warning("calls", Cause.WAITS_FOR_NEWER_WORKER, found, advice)


def _refused(tasks: RefusedTasks) -> str:
    return f"{tasks.actor} ({tasks.tasks:,}; version {' and '.join(tasks.versions)} {tasks.why})"
