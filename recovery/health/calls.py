"""Check of the calls of tasks: workers have code that accepts them."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine import Resources
from recovery.health.model import Cause, Check, Level, join_names, ok, warning
from recovery.store.views.refused import INDEX, RefusedTasks
from recovery.wording import count, show_duration


def calls(resources: Resources) -> Check:
    """No task waits for a newer worker. Costs the tasks that do."""
    if f"index decisions.{INDEX}" in resources.store.layout.missing():
        found = f"not asked without the index decisions.{INDEX}: all records would be read"
        return Check("calls", Level.WARNING, Cause.INDEX_MISSING, found, "see `collections`", asked=False)
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
