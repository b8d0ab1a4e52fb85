"""Repairs of damaged records: drop fields that are not needed, and restore data that other records contain.

Each record is read again, and changed only while the damage is unchanged.
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
    """Return whether it is known what a task ended with."""
    return isinstance(outcome, dict) and (type(outcome.get("value")) is str or isinstance(outcome.get("error"), dict))


class DamageRepairs:
    """Repairs of single damaged records."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        # Seconds after which no worker is still writing the graph. Before that, a missing record proves nothing.
        self._graph_delay = 1.2 * resources.settings.apply_timeout
        self.actions: dict[Repair, Action] = {
            Repair.MEND: on_each(self._then_check(self._drop)),
            Repair.PUT_BACK: on_each(self._then_check(self._run_again)),
            Repair.RESTORE_TASK: on_each(self._make_again),
            Repair.REPLACE_GRAPH: on_each(self._rebuild),
            Repair.REMAKE_GRAPH: on_each(self._remake),
            Repair.SET_EPOCH: on_each(lambda record: bool(self._store.corrections.set_epoch(record))),
            Repair.SET_TIME: self._set_time,
        }

    def _then_check(self, step: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return a step that mends a record and then advances the deadline of its process's graph.

        While a record could not be read, no rule could find other problems of the process.
        """

        def mend(record: str) -> bool:
            mended = step(record)
            if mended:
                self._store.graphs.look_soon(split_record_id(record)[0], self._graph_delay)
            return mended

        return mend

    def _drop(self, record: str) -> bool:
        kinds: list[type[Record]] = [Decision] if "/" in record else [Process, Graph]
        damages = (self._store.mending.look(kind, record) for kind in kinds)
        match = next((damage_and_document for damage_and_document in damages if damage_and_document is not None), None)
        if match is None or not droppable(match[0]):
            return False
        damage, replacements = match[0], Document()
        if "actor" in damage.fields:
            if (actor := self._actor(record)) is None:
                return False
            replacements |= {"actor": actor}
        if "epoch" in damage.fields:
            replacements |= {"epoch": self._epoch(damage)}
        if "state" in damage.fields and damage.kind == Decision.__name__:
            replacements |= {"state": state_shown(match[1], self._store.now()).value}
        if "pinnedTo" in damage.fields:
            if (pin := self._pin(record)) is None:
                return False
            replacements |= pin
        return self._store.mending.drop(*match, replacements)

    def _epoch(self, damage: DamagedRecord) -> int:
        """Return the epoch for a record that lacks it: that of its process or, for a process, that of its graph.

        Defaults to 0.
        """
        process_id = split_record_id(damage.record)[0]
        if damage.kind == Process.__name__:
            source: Graph | Process | None = self._store.graphs.get_many([process_id]).get(process_id)
        else:
            source = self._store.processes.briefs([process_id]).get(process_id)
        return source.epoch if source is not None else 0

    def _pin(self, record: str) -> Document | None:
        """Return `pinnedTo` of a decision as a field, empty if it is not pinned; None if the process does not tell."""
        process_id = split_record_id(record)[0]
        process = self._store.processes.briefs([process_id]).get(process_id)
        if process is None or (process.pinned and process.version is None):
            return None
        return {"pinnedTo": process.version} if process.pinned else {}

    def _actor(self, record: str) -> str | None:
        """Return the actor of a decision; None if it is not known.

        It is read from the Task record or from the decision that scheduled the task.
        """
        if (task := self._store.tasks.links([record]).get(record)) is not None:
            return task.actor
        parents = self._store.decisions.effects(self._store.decisions.parents([record]).values())
        children = (child for parent in parents.values() for child in parent.children)
        return next((child.actor for child in children if record.endswith(f"/{child.id}")), None)

    def _run_again(self, record: str) -> bool:
        match = self._store.mending.look(Decision, record)
        if match is not None and droppable(match[0]):
            return self._drop(record)  # a field that no rule reads; drop it first, so that the rest can be read
        if match is None or match[0].fields != ("outcome",):
            return False
        damage, document = match
        if not _has_result(document.get("outcome")):
            return self._store.mending.put_back(damage, document)
        # The outcome was accepted, so it stays even if its other fields can't be read.
        return self._store.mending.mend_end(damage, document)

    def _make_again(self, record: str) -> bool:
        """Remove a damaged Task record, and apply its parent's decision again, which creates it.

        If this is interrupted, the record is missing, and a rule finds that.
        """
        parents = self._store.decisions.parents([record])
        match = self._store.mending.look(Task, record)
        if match is None or record not in parents or not self._store.mending.remove(*match):
            return False
        self._applying.apply([parents[record]])
        return True

    def _rebuild(self, process_id: str) -> bool:
        """Remove a damaged graph and rebuild it.

        If this is interrupted, the graph is missing, and a rule finds that.
        """
        match = self._store.mending.look(Graph, process_id)
        if match is None or not self._store.mending.remove(*match):
            return False
        return bool(rebuild_graphs(self._resources, [process_id]))

    def _remake(self, process_id: str) -> bool:
        try:
            return bool(remake_graph(self._resources, process_id))
        except DamagedRecord as damage:
            # The damage is in a field that no rule reads, or it was just mended and no majority has that yet.
            if not (self._drop(damage.record) or self._store.mending.look(Decision, damage.record) is None):
                raise
        self._store.graphs.look_soon(process_id, self._graph_delay)
        return False

    def _set_time(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        processes = dict.fromkeys(finding.record for finding in findings if finding.decision is None)
        changed = of_each(processes, lambda key: bool(self._store.corrections.set_process_times(key)))
        tasks = {finding.record: finding.decision.actor for finding in findings if finding.decision is not None}
        timeouts = {name: surroundings.actor(name).worker_timeout for name in tasks.values()}
        return changed + of_count(tasks, self._store.corrections.set_task_times(list(tasks), timeouts) if tasks else 0)
