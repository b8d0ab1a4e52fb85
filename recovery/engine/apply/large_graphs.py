"""Large graphs: one slot applies the finished tasks of all slots of all workers.

Each update writes the whole graph. The server serializes concurrent updates of a graph and repeats those that another
update overtook, so more slots would apply fewer tasks. Instead, whoever ends a task of a large graph adds it to a list
in Redis (`recovery.queue.Turns`). Whoever has the turn applies up to a thousand of them in one update, with pauses that
leave most of the server's time to others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.engine.apply.apply import Group, Take
from recovery.engine.isolation import tell
from recovery.engine.resources import Resources
from recovery.engine.steps import Ended, ended_portions, read_each
from recovery.errors import BrokerError
from recovery.queue.coordination import TurnStep
from recovery.records.ids import record_id

log = logging.getLogger(__name__)

LARGE_GRAPH = 64 * 1024
"""Graph size in bytes from which an update of the graph costs more than everything else that a task costs."""
LARGE_GRAPHS = 1000
"""Maximum number of processes whose graphs are remembered as large."""
PAGE = 1000
"""Maximum number of finished tasks that one update applies."""
PAUSE, MIN_PAUSE, MAX_PAUSE = 4, 0.1, 1.0
"""After a partial page, pause for PAUSE times the last step, within MIN_PAUSE..MAX_PAUSE seconds. Other slots end tasks
meanwhile."""
KEPT = 2000
"""Maximum number of tasks whose records the owner of a turn keeps in memory. Other tasks are read."""

Apply = Callable[[Group, Take | None], None]
"""Applies decisions of one process and epoch. A damaged record stops only itself."""


@dataclass(slots=True)
class _Turn:
    """A turn that this process has: the tasks it ended itself (`own`), and when the next step is due.

    `applied` are the tasks at the head of the list that are already applied. `busy` means that a thread runs a step.
    """

    own: dict[str, Ended] = field(default_factory=dict)
    applied: tuple[str, ...] = ()
    due: float = 0.0
    busy: bool = True


class LargeGraphs:
    """The large graphs that one pool process knows, and the turns that it has. Thread-safe."""

    def __init__(self, resources: Resources, apply: Apply) -> None:
        self._store, self._turns, self._apply = resources.store, resources.turns, apply
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._mine: dict[str, _Turn] = {}

    def knows(self, process_id: str) -> bool:
        """Return whether the graph of this process was large when its size was last noted."""
        return process_id in self._sizes

    def note(self, process_id: str, size: int) -> None:
        """Note the current size of a process's graph in bytes; 0 if the process is over."""
        with self._lock:
            if size > LARGE_GRAPH:
                self._sizes[process_id] = size
            else:
                self._sizes.pop(process_id, None)
            while len(self._sizes) > LARGE_GRAPHS:  # entries stay if another worker finishes the process
                del self._sizes[next(iter(self._sizes))]

    @property
    def has_turns(self) -> bool:
        """Return whether this process has a turn to continue with `go_on`."""
        return bool(self._mine)

    @property
    def next_due(self) -> float:
        """Return the monotonic time at which the next step of a turn is due; infinity if no turn waits."""
        with self._lock:
            return min((turn.due for turn in self._mine.values() if not turn.busy), default=float("inf"))

    def hand_over(self, group: Group, take: Take | None = None) -> bool:
        """Have finished decisions of one process applied by whoever has the turn.

        If nobody has the turn, the caller gets it and applies them at once.

        Args:
            group: Decisions of one process that ended with values.
            take: Claims some of the tasks that become ready, if the group is applied at once.

        Returns:
            False if Redis is away. The caller must then apply the group itself.
        """
        process_id, tasks = group[0].process_id, {ended.task.task_id: ended for ended in group}
        with self._lock:
            turn_here = self._mine.get(process_id)
            if turn_here is not None and len(turn_here.own) < KEPT:
                turn_here.own |= tasks
        try:
            if not self._turns.join(process_id, list(tasks)):
                return True
        except BrokerError as error:
            log.debug("could not hand over finished tasks (%s); they are applied here", error)
            return False
        turn = _Turn(tasks)
        with self._lock:
            self._mine[process_id] = turn
        try:
            self._step(process_id, turn, take)
            self._step(process_id, turn)  # usually the last step, if the list held only these tasks
        finally:
            turn.busy = False
        return True

    def go_on(self, *, at_once: bool = False) -> None:
        """Apply the tasks that were added to the lists since, for each turn whose pause is over; for all turns if
        `at_once`.

        Each due turn is tried. Then the last error is raised, if any.
        """
        with self._lock:
            now = time.monotonic()
            due = [(key, turn) for key, turn in self._mine.items() if not turn.busy and (at_once or turn.due <= now)]
            for _, turn in due:
                turn.busy = True
        failed: Exception | None = None
        for process_id, turn in due:
            try:
                self._step(process_id, turn)
            except Exception as error:  # one turn must not block the others
                failed = error
            finally:
                turn.busy = False
        if failed is not None:
            raise failed

    def _step(self, process_id: str, turn: _Turn, take: Take | None = None) -> None:
        if self._mine.get(process_id) is not turn:
            return
        started, is_over = time.monotonic(), True
        try:
            page = self._page(process_id, turn)
            page_tasks = dict.fromkeys((*page.removed, *page.waiting))
            tasks = [task for task in page_tasks if task not in turn.applied]
            if tasks:
                self._apply_tasks(process_id, tasks, turn, take)
            turn.applied, is_over = page.waiting, not page.waiting
        finally:
            with self._lock:
                now = time.monotonic()
                pause = min(max(PAUSE * (now - started), MIN_PAUSE), MAX_PAUSE)
                turn.due = now if len(turn.applied) == PAGE else now + pause
                if is_over and self._mine.get(process_id) is turn:
                    del self._mine[process_id]

    def _page(self, process_id: str, turn: _Turn) -> TurnStep:
        try:
            return self._turns.go_on(process_id, len(turn.applied), PAGE)
        except BrokerError:  # the list may be lost, and the turn with it: apply the tasks known here
            return TurnStep(tuple(turn.own), ())

    def _apply_tasks(self, process_id: str, tasks: Sequence[str], turn: _Turn, take: Take | None) -> None:
        own = [ended for task in tasks if (ended := turn.own.pop(task, None)) is not None]
        known = {ended.task.task_id for ended in own}
        for portion in (own, *self._read([record_id(process_id, task) for task in tasks if task not in known])):
            by_epoch: dict[int, list[Ended]] = defaultdict(list)
            for ended in portion:
                by_epoch[ended.decision.epoch].append(ended)
            for group in by_epoch.values():
                self._apply(group, take)

    def _read(self, ids: Sequence[str]) -> Iterator[list[Ended]]:
        for portion in ended_portions(self._store, ids) if ids else ():
            yield read_each(self._store, portion, tell)
