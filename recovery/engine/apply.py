"""Apply: a finished decision's effects reach the graph (design §3, 'apply').

    insert children → graph: move the task, add children and links → enqueue what is ready
    → if nothing is open, finish the process → take the deadline off the decision

Every step may run twice; cut off anywhere, the decision still has its deadline, and `apply` is run again by
DECISION_NOT_APPLIED. The last step needs no haste, so the words 'applied' of many decisions are written in
one update; a decision whose word is lost is applied once more, which changes nothing.

A graph of thousands of tasks is slow to write. While a process's graph is large, finished tasks without
children wait a few milliseconds for each other and are applied together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pymongo.errors import OperationFailure, PyMongoError

from recovery.engine.complete import break_process, finish_process, too_large
from recovery.engine.dispatch import enqueue
from recovery.engine.resources import Resources
from recovery.records import Child, Decision, Task
from recovery.records.ids import record_id, split_record_id
from recovery.store import Finished, GraphView, is_too_large

log = logging.getLogger(__name__)

LARGE_GRAPH = 64 * 1024
"""Bytes from which on a graph's update costs more than all else that a task costs."""
TOGETHER = 64
"""Finished tasks that are applied to a large graph in one update, at most."""
PATIENCE = 0.05
"""Seconds that a finished task waits for others while its graph is large. With the update's own time it
stays far below `apply_timeout`, from which on others would apply it."""


class Applied(StrEnum):
    """What came of an apply."""

    NOW = "applied"
    BEFORE = "was applied before"
    NOT_YET = "its parent is not applied yet"
    STALE = "of an earlier epoch, or of no graph"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task and its finished decision."""

    task: Task
    decision: Decision

    @property
    def process_id(self) -> str:
        return self.decision.process_id


Take = Callable[[Mapping[str, str]], Decision | None]
"""Given {ready decision: its actor}, claims one of them for the caller, or none."""


class Applier:
    """Applies finished decisions for one process of a worker. Safe for threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._buffers: dict[str, list[Ended]] = defaultdict(list)
        self._sizes: dict[str, int] = {}
        self._applied: list[str] = []
        self._flusher: threading.Thread | None = None

    def submit(self, ended: Ended, take: Take | None = None) -> Decision | None:
        """Apply a decision, now or, where its graph is large, with others in a moment.

        Of the tasks that become ready `take` may claim one for the caller; it is returned, not enqueued.
        """
        full = None
        with self._lock:
            large = self._sizes.get(ended.process_id, 0) > LARGE_GRAPH
            if large and not ended.decision.children and _value(ended):
                buffer = self._buffers[ended.process_id]
                buffer.append(ended)
                full = self._buffers.pop(ended.process_id) if len(buffer) >= TOGETHER else None
                self._start_flusher()
            else:
                full = [ended]
        return self._apply(full, take)[1] if full else None

    def apply(self, together: list[Ended]) -> Applied:
        """Apply decisions of one process and epoch, now; what came of the last of them."""
        return self._apply(together, None)[0]

    def _apply(self, together: list[Ended], take: Take | None) -> tuple[Applied, Decision | None]:
        store, process_id = self._resources.store, together[0].process_id
        for ended in together:
            self._insert_children(ended)
        finished = [_finished(ended) for ended in together if _value(ended)]
        try:
            view = store.graphs.apply(process_id, together[0].decision.epoch, finished) if finished else None
        except OperationFailure as error:
            if not is_too_large(error):
                raise
            return self._outgrown(together), None
        if view is None and len(together) > 1:
            return [self._apply([ended], None) for ended in together][-1]
        result, taken = Applied.NOW, None
        if view is None and finished:
            result, view = self._applied_before(together[0], finished[0])
        elif view is None:
            result = self._fail(together[0])
        if view is not None:
            taken = self._go_on(together, view, take)
        if result is not Applied.NOT_YET:
            self._rest_soon([ended.decision.id for ended in together])
        return result, taken

    def flush(self) -> None:
        """Apply what waits, and write which decisions are applied."""
        self._apply_waiting()
        self._write_applied()

    def _apply_waiting(self) -> None:
        with self._lock:
            buffers, self._buffers = self._buffers, defaultdict(list)
        for together in buffers.values():
            self.apply(together)

    def _write_applied(self) -> None:
        with self._lock:
            applied, self._applied = self._applied, []
        if applied:
            self._resources.store.decisions.rest(applied)

    def _insert_children(self, ended: Ended) -> None:
        tasks, decisions = records_of_children(ended.task, ended.decision)
        self._resources.store.tasks.insert(tasks)
        self._resources.store.decisions.insert(decisions)

    def _applied_before(self, ended: Ended, finished: Finished) -> tuple[Applied, GraphView | None]:
        view = self._resources.store.graphs.view(ended.process_id, finished)
        if view is None or view.epoch != ended.decision.epoch:
            return Applied.STALE, None
        if not view.registered:
            self._resources.store.decisions.apply_later(ended.decision.id, self._resources.settings.apply_timeout)
            return Applied.NOT_YET, None
        return Applied.BEFORE, view

    def _outgrown(self, together: list[Ended]) -> Applied:
        """The graph can't take these tasks: break the process, or it would be tried for ever."""
        store, process_id, epoch = self._resources.store, together[0].process_id, together[0].decision.epoch
        for ended in together:
            store.graphs.fail(process_id, epoch, ended.task.task_id)
        broken = break_process(self._resources, process_id, epoch, too_large("graph"))
        self._rest_soon([ended.decision.id for ended in together])
        return Applied.NOW if broken else Applied.BEFORE

    def _fail(self, ended: Ended) -> Applied:
        decision = ended.decision
        assert decision.outcome is not None and decision.outcome.error is not None
        known = self._resources.store.graphs.fail(ended.process_id, decision.epoch, decision.task_id)
        broken = break_process(self._resources, ended.process_id, decision.epoch, decision.outcome.error)
        return Applied.NOW if known and broken else Applied.BEFORE

    def _go_on(self, together: list[Ended], view: GraphView, take: Take | None) -> Decision | None:
        process_id = together[0].process_id
        ready = [record_id(process_id, task) for task in view.ready]
        taken = take({key: _actor_of(together, key) for key in ready}) if take and ready else None
        enqueue(self._resources, [key for key in ready if taken is None or key != taken.id])
        if view.complete:
            finish_process(self._resources, process_id, view.epoch)
        with self._lock:
            if view.complete:
                self._sizes.pop(process_id, None)
            elif view.size > LARGE_GRAPH:
                self._sizes[process_id] = view.size
        return taken

    def _rest_soon(self, decision_ids: list[str]) -> None:
        with self._lock:
            self._applied += decision_ids
            full = len(self._applied) >= TOGETHER
            self._start_flusher()
        if full:
            self._write_applied()

    def _start_flusher(self) -> None:
        if self._flusher is None:
            self._flusher = threading.Thread(target=self._flush_always, name="applier", daemon=True)
            self._flusher.start()
        self._wake.set()

    def _flush_always(self) -> None:
        written, pause = time.monotonic(), threading.Event()
        while self._wake.wait():
            self._wake.clear()
            pause.wait(PATIENCE)
            try:
                self._apply_waiting()
                if time.monotonic() > written + self._resources.settings.apply_timeout / 4:
                    self._write_applied()
                    written = time.monotonic()
                elif self._applied:
                    self._wake.set()
            except PyMongoError as error:
                log.warning("could not apply yet (%s): it is done again within the apply timeout", error)
            except Exception:  # one process's records must not end this thread, which applies for all
                log.exception("could not apply: it is tried again after the apply timeout")


def records_of_children(task: Task, decision: Decision) -> tuple[list[Task], list[Decision]]:
    """The records of a finished decision's children, as they are first written."""
    process_id, waits = decision.process_id, decision.outcome.waits if decision.outcome else ()
    tasks, decisions = [], []
    for child in decision.children:
        made = Task(
            id=record_id(process_id, child.id),
            actor=child.actor,
            args=child.args,
            parent=task.task_id,
            epoch=decision.epoch,
            deps=child.deps,
            dependents=_dependents(child, task, waits),
        )
        tasks.append(made)
        decisions.append(first_decision(made, child))
    return tasks, decisions


def first_decision(task: Task, child: Child | None = None) -> Decision:
    """A task's Decision as it is first written: waiting."""
    times = {"eta": child.eta, "delay": child.delay} if child is not None else {}
    return Decision(id=task.id, actor=task.actor, epoch=task.epoch, call=task.call(), **times)  # type: ignore[arg-type]


def _dependents(child: Child, parent: Task, waits: tuple[str, ...]) -> dict[str, str]:
    """Who waits for a child: its siblings, and whoever waits for its parent if the parent promised it."""
    return child.dependents | parent.dependents if child.id in waits else child.dependents


def _finished(ended: Ended) -> Finished:
    outcome = ended.decision.outcome
    return Finished(
        task=ended.task.task_id,
        children={child.id: child.deps for child in ended.decision.children},
        dependents=ended.task.dependents,
        waits=outcome.waits if outcome else (),
    )


def _actor_of(together: list[Ended], key: str) -> str:
    task = split_record_id(key)[1]
    for ended in together:
        if task in ended.task.dependents:
            return ended.task.dependents[task]
        for child in ended.decision.children:
            if child.id == task:
                return child.actor
    raise KeyError(key)


def _value(ended: Ended) -> bool:
    return ended.decision.outcome is not None and ended.decision.outcome.error is None
