"""Large graphs: one applies for all, whichever slots of whichever workers end their tasks.

Each update writes the whole graph. What many do at once the server does one after the other, and again what another's
update overtook: with more slots it did less. So whoever ends a task of a large graph puts it into a list
(`recovery.queue.Turns`), and whoever has the turn applies a thousand of them by one update, as often as leaves the
server free for nine tenths of the time.
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
"""Bytes from which on a graph's update costs more than all else that a task costs."""
LARGE_GRAPHS = 1000
"""Of so many processes it is remembered that their graph is large."""
PAGE = 1000
"""Finished tasks that are applied in one update, at most."""
PAUSE, MIN_PAUSE, MAX_PAUSE = 4, 0.1, 1.0
"""Between two steps of a turn that did not have a whole page: as many times what the last took, and seconds. Others end
tasks meanwhile."""
KEPT = 2000
"""Of so many tasks whoever has the turn keeps what it knows; others' are read."""

Apply = Callable[[Group, Take | None], None]
"""Applies decisions of one process and epoch. A damaged record stops only itself."""


@dataclass(slots=True)
class _Turn:
    """`applied`: what is first in the list, and done. `busy`: a thread is at it."""

    own: dict[str, Ended] = field(default_factory=dict)
    applied: tuple[str, ...] = ()
    due: float = 0.0
    busy: bool = True


class LargeGraphs:
    """Of one process of a worker: which graphs are large, and where it has the turn. Safe for threads."""

    def __init__(self, resources: Resources, apply: Apply) -> None:
        self._store, self._turns, self._apply = resources.store, resources.turns, apply
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._mine: dict[str, _Turn] = {}

    def knows(self, process_id: str) -> bool:
        """Whether this process's graph was large when it was seen last."""
        return process_id in self._sizes

    def note(self, process_id: str, size: int) -> None:
        """Its graph has so many bytes now; none if its process is over."""
        with self._lock:
            if size > LARGE_GRAPH:
                self._sizes[process_id] = size
            else:
                self._sizes.pop(process_id, None)
            while len(self._sizes) > LARGE_GRAPHS:  # of processes that others finish nothing is heard any more
                del self._sizes[next(iter(self._sizes))]

    @property
    def has_turns(self) -> bool:
        """Whether there is something to `go_on` with."""
        return bool(self._mine)

    @property
    def next_due(self) -> float:
        """When there is, by the monotonic clock."""
        with self._lock:
            return min((turn.due for turn in self._mine.values() if not turn.busy), default=float("inf"))

    def hand_over(self, group: Group, take: Take | None = None) -> bool:
        """See that decisions of one process, which have values, are applied: at once if nobody has the turn, and then
        `take` may claim some of the tasks that become ready; else by whoever has. False where Redis is away: nobody
        applies them then."""
        process_id, tasks = group[0].process_id, {one.task.task_id: one for one in group}
        with self._lock:
            mine = self._mine.get(process_id)
            if mine is not None and len(mine.own) < KEPT:
                mine.own |= tasks
        try:
            if not self._turns.join(process_id, list(tasks)):
                return True
        except BrokerError as error:
            log.debug("nobody can be handed what ended (%s)", error)
            return False
        turn = _Turn(tasks)
        with self._lock:
            self._mine[process_id] = turn
        try:
            self._step(process_id, turn, take)
            self._step(process_id, turn)  # the last, mostly, if these tasks were the only ones
        finally:
            turn.busy = False
        return True

    def go_on(self, *, at_once: bool = False) -> None:
        """Apply what came since, of those processes whose pause is over; `at_once`: of all."""
        with self._lock:
            now = time.monotonic()
            due = [(key, turn) for key, turn in self._mine.items() if not turn.busy and (at_once or turn.due <= now)]
            for _, turn in due:
                turn.busy = True
        failed: Exception | None = None
        for process_id, turn in due:
            try:
                self._step(process_id, turn)
            except Exception as error:  # the others may go on all the same
                failed = error
            finally:
                turn.busy = False
        if failed is not None:
            raise failed

    def _step(self, process_id: str, turn: _Turn, take: Take | None = None) -> None:
        if self._mine.get(process_id) is not turn:
            return
        began, over = time.monotonic(), True
        try:
            page = self._page(process_id, turn)
            there = dict.fromkeys((*page.removed, *page.waiting))
            tasks = [task for task in there if task not in turn.applied]
            if tasks:
                self._apply_tasks(process_id, tasks, turn, take)
            turn.applied, over = page.waiting, not page.waiting
        finally:
            with self._lock:
                now = time.monotonic()
                pause = min(max(PAUSE * (now - began), MIN_PAUSE), MAX_PAUSE)
                turn.due = now if len(turn.applied) == PAGE else now + pause
                if over and self._mine.get(process_id) is turn:
                    del self._mine[process_id]

    def _page(self, process_id: str, turn: _Turn) -> TurnStep:
        try:
            return self._turns.go_on(process_id, len(turn.applied), PAGE)
        except BrokerError:  # with the list the turn is lost, and here is what is known of it
            return TurnStep(tuple(turn.own), ())

    def _apply_tasks(self, process_id: str, tasks: Sequence[str], turn: _Turn, take: Take | None) -> None:
        own = [ended for task in tasks if (ended := turn.own.pop(task, None)) is not None]
        known = {ended.task.task_id for ended in own}
        for some in (own, *self._read([record_id(process_id, task) for task in tasks if task not in known])):
            by_epoch: dict[int, list[Ended]] = defaultdict(list)
            for ended in some:
                by_epoch[ended.decision.epoch].append(ended)
            for group in by_epoch.values():
                self._apply(group, take)

    def _read(self, ids: Sequence[str]) -> Iterator[list[Ended]]:
        for portion in ended_portions(self._store, ids) if ids else ():
            yield read_each(self._store, portion, tell)
