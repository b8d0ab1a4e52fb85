"""Tasks that are pinned to a version of the application which no live worker runs, in words, and the check of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.engine import Resources
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, warning
from recovery.records import Decision, DecisionState, Worker
from recovery.records.preferences import SAME_VERSION
from recovery.store.views.refused import INDEX, PinnedTasks
from recovery.wording import count

_UNDECIDED = frozenset({DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED})


def pinned_in_vain(resources: Resources, decisions: Iterable[Decision]) -> dict[str, str]:
    """Return what tasks wait for that are pinned to a version which no live worker runs, by the ids of their decisions.
    Asks MongoDB only if there are pinned tasks that wait."""
    waiting = [one for one in decisions if one.pinned_to is not None and one.state in _UNDECIDED]
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
        found = f"not asked without the index decisions.{INDEX}: all records would be read"
        return Check("pins", Level.WARNING, Cause.INDEX_MISSING, found, "see `collections`", asked=False)
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
