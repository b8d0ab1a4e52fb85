"""Repairs of damaged records: what can be done without is dropped, and what stands elsewhere too is made again.

Each is read anew, and changed only while that is what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recovery.engine import Resources, rebuild_graphs, remake_graph
from recovery.errors import DamagedRecord
from recovery.records import Decision, Graph, Process, Record, Task
from recovery.records.ids import split_record_id
from recovery.repair.changed import Action, Changed, of_count, of_each, on_each
from recovery.repair.ended_tasks import Applying
from recovery.rules import Finding, Repair, Rule, Surroundings, droppable, state_shown
from recovery.store.client import Document


def _has_result(outcome: Any) -> bool:
    """Whether it can be known what a task ended with."""
    return isinstance(outcome, dict) and (type(outcome.get("value")) is str or isinstance(outcome.get("error"), dict))


class DamageRepairs:
    """What can be done about one damaged record."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        # When nobody has been at work on the graph for a while: only then absence is a finding.
        self._soon = 1.2 * resources.settings.apply_timeout
        self.actions: dict[Repair, Action] = {
            Repair.MEND: on_each(self._then_look(self._drop)),
            Repair.PUT_BACK: on_each(self._then_look(self._run_again)),
            Repair.RESTORE_TASK: on_each(self._make_again),
            Repair.REPLACE_GRAPH: on_each(self._rebuild),
            Repair.REMAKE_GRAPH: on_each(self._remake),
            Repair.SET_EPOCH: on_each(lambda record: bool(self._store.corrections.set_epoch(record))),
            Repair.SET_TIME: self._set_time,
        }

    def _then_look(self, step: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return a step that mends a record and has its process looked at soon: while a record of it could not be read
        nobody looked for what else is wrong."""

        def mend(record: str) -> bool:
            mended = step(record)
            if mended:
                self._store.graphs.look_soon(split_record_id(record)[0], self._soon)
            return mended

        return mend

    def _drop(self, record: str) -> bool:
        kinds: list[type[Record]] = [Decision] if "/" in record else [Process, Graph]
        looked_at = (self._store.mending.look(kind, record) for kind in kinds)
        found = next((one for one in looked_at if one is not None), None)
        if found is None or not droppable(found[0]):
            return False
        damage, instead = found[0], Document()
        if "actor" in damage.fields:
            if (actor := self._actor(record)) is None:
                return False
            instead |= {"actor": actor}
        if "epoch" in damage.fields:
            instead |= {"epoch": self._epoch(damage)}
        if "state" in damage.fields and damage.kind == Decision.__name__:
            instead |= {"state": state_shown(found[1], self._store.now()).value}
        if "pinnedTo" in damage.fields:
            if (pin := self._pin(record)) is None:
                return False
            instead |= pin
        return self._store.mending.drop(*found, instead)

    def _epoch(self, damage: DamagedRecord) -> int:
        """Return the epoch for a record that lacks it: that of its process, or for a process that of its graph."""
        process_id = split_record_id(damage.record)[0]
        if damage.kind == Process.__name__:
            whole: Graph | Process | None = self._store.graphs.get_many([process_id]).get(process_id)
        else:
            whole = self._store.processes.briefs([process_id]).get(process_id)
        return whole.epoch if whole is not None else 0

    def _pin(self, record: str) -> Document | None:
        """Return what a decision is pinned to, as a field that may be absent; None if its process does not say."""
        process_id = split_record_id(record)[0]
        process = self._store.processes.briefs([process_id]).get(process_id)
        if process is None or (process.pinned and process.version is None):
            return None
        return {"pinnedTo": process.version} if process.pinned else {}

    def _actor(self, record: str) -> str | None:
        """Return the actor of a decision, as its task has it, or the decision that scheduled that."""
        if (task := self._store.tasks.links([record]).get(record)) is not None:
            return task.actor
        parents = self._store.decisions.effects(self._store.decisions.parents([record]).values())
        children = (child for parent in parents.values() for child in parent.children)
        return next((child.actor for child in children if record.endswith(f"/{child.id}")), None)

    def _run_again(self, record: str) -> bool:
        found = self._store.mending.look(Decision, record)
        if found is not None and droppable(found[0]):
            return self._drop(record)  # of what no rule reads: first, so that the rest can be seen
        if found is None or found[0].fields != ("outcome",):
            return False
        damage, document = found
        if not _has_result(document.get("outcome")):
            return self._store.mending.put_back(damage, document)
        # What was accepted stays, whatever else of it can't be read.
        return self._store.mending.mend_end(damage, document)

    def _make_again(self, record: str) -> bool:
        """By its parent's decision applied again. Cut off in between it is missing, and found so."""
        parents = self._store.decisions.parents([record])
        found = self._store.mending.look(Task, record)
        if found is None or record not in parents or not self._store.mending.remove(*found):
            return False
        self._applying.apply([parents[record]])
        return True

    def _rebuild(self, process_id: str) -> bool:
        """Cut off in between it is missing, and found so."""
        found = self._store.mending.look(Graph, process_id)
        if found is None or not self._store.mending.remove(*found):
            return False
        return bool(rebuild_graphs(self._resources, [process_id]))

    def _remake(self, process_id: str) -> bool:
        try:
            return bool(remake_graph(self._resources, process_id))
        except DamagedRecord as damage:
            # In a field that no rule looks at; or it was mended a moment ago, and a majority does not have that yet.
            if not (self._drop(damage.record) or self._store.mending.look(Decision, damage.record) is None):
                raise
        self._store.graphs.look_soon(process_id, self._soon)
        return False

    def _set_time(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        processes = dict.fromkeys(f.record for f in findings if f.decision is None)
        changed = of_each(processes, lambda key: bool(self._store.corrections.set_process_times(key)))
        tasks = {f.record: f.decision.actor for f in findings if f.decision is not None}
        timeouts = {name: around.actor(name).worker_timeout for name in tasks.values()}
        return changed + of_count(tasks, self._store.corrections.set_task_times(list(tasks), timeouts) if tasks else 0)
