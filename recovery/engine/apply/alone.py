"""Apply for processes of one task, many at once: its graph complete, its process finished, by one update of each.

    graph: the task finished, nothing open → Process finished with the task's value

What is not as it should be for that (a task beside it, another epoch, a process that was reopened) is left as it is:
the way of one (`apply`) takes it from there.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine.resources import Resources
from recovery.engine.steps import Ended
from recovery.metrics import counting
from recovery.records.ids import START_TASK


def apply_alone(resources: Resources, together: Sequence[Ended]) -> list[Ended]:
    """Apply these, and end their processes; which of them are done."""
    store = resources.store
    results = {one.process_id: one.decision.outcome.value or "" for one in together if one.decision.outcome}
    if store.graphs.complete_alone(list(results), START_TASK) < len(results):
        complete = set(store.graphs.complete(list(results)))
        results = {key: value for key, value in results.items() if key in complete}
    if not results:
        return []
    ends = store.process_batches.finish(results)
    by_this = {one.process_id: one.decision.actor for one in together if one.process_id in ends.by_this}
    counting.finished_alone(by_this)
    return [one for one in together if one.process_id in ends.there]
