"""Finished tasks that are yet to be applied, each with the time when it is due.

A graph's update is what costs most of a task that does nothing, so finished tasks of one process are applied by one
update where nobody waits for that, and those of many processes together.

    now                  something may become ready by it
    GATHER_DELAY later   its successor was claimed on the spot, so the graph only has to learn it
    at its turn          its graph is large, and slow to write: one applies for all (`large_graphs`)

What is due is applied by whoever put it here and waits for what becomes ready, or by the outbox's own thread, which
also takes the deadlines off what is applied (`clearing`). Nothing waits for longer than GATHER_DELAY, or a turn's
pause: far below `apply_timeout`, from which on others would apply it. What a kill leaves here is applied by them, too.

Only decisions that a majority has come here: of an attempt whose end was acknowledged, or read so
(`repair.ended_tasks`). What is applied from memory after a failover is true, then, on any primary.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recovery import tracing
from recovery.engine.apply.apply import Effect, Group, Take, apply, apply_together
from recovery.engine.apply.clearing import PAUSE, Clearing
from recovery.engine.apply.large_graphs import PAGE, LargeGraphs
from recovery.engine.isolation import in_a_line, is_of_servers, tell
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied, Ended
from recovery.errors import StoreError
from recovery.store import batches
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

TOGETHER = 64
"""Processes whose tasks are applied together, and tasks of one process, at most."""
GATHER_DELAY = 0.1
"""Seconds that a finished task waits for others."""
FLUSH_TIMEOUT = 1.0
"""Seconds that a flush goes on with turns, while others end tasks of their processes."""
CATCH_UP_TIMEOUT = 1.0
"""Seconds that a flush waits for the majority: a thousand times what it takes while all is well."""

NEVER = float("inf")
Key = tuple[str, int]
"""A process and an epoch."""


@dataclass(slots=True)
class _Waiting:
    """Finished tasks of one process and epoch, and when they are due."""

    ended: list[Ended] = field(default_factory=list)
    due: float = NEVER


class Outbox:
    """Applies the finished decisions of one process of a worker. Safe for threads."""

    def __init__(self, resources: Resources) -> None:
        self._lock, self._applying = threading.Lock(), threading.Lock()
        self._waiting: dict[Key, _Waiting] = {}
        self._large = LargeGraphs(resources, self._apply)
        self._clearing = Clearing(resources)
        self._thread, self._wakes_at = ServiceThread("outbox", self._step, self._tell), NEVER
        self._resources = resources

    def put(self, ended: Sequence[Ended], take: Take | None = None) -> None:
        """Have decisions applied when they are due, with what else of their processes waits.

        With `take` those that are due now are applied before this returns, and of the tasks that become ready it may
        claim some. So they are where the outbox has more than enough to do, or no thread. A damaged record stops only
        itself; errors of servers are raised then, after all were tried.
        """
        now, keys = time.monotonic(), dict.fromkeys((one.process_id, one.decision.epoch) for one in ended)
        has_thread = self._start_thread()
        with self._lock:
            for one in ended:
                self._add(one, now)
            if take is not None or not has_thread:
                due = self._pop(now if has_thread else NEVER, keys)
            elif len(self._waiting) > TOGETHER and sum(one.due <= now for one in self._waiting.values()) > TOGETHER:
                due = self._pop(now)
            else:
                due = []
            # What else waits has woken the thread before.
            next_due = min((self._waiting[key].due for key in keys if key in self._waiting), default=NEVER)
        self._wake_for(next_due)
        self._apply_groups(due, take)

    def apply(self, group: Group) -> dict[str, Applied]:
        """Apply decisions of one process and epoch now: {decision: what came of it}. Errors are raised."""
        return {one.decision.id: effect.applied for effect in self._apply_one(group) for one in effect.group}

    def flush(self) -> None:
        """Apply what waits, and clear the deadlines of what is applied. When it returns, that is done, by whomever; but
        for deadlines while the majority lags behind, and for what whoever has the turn of a large graph applies."""
        with self._applying:
            self._apply_groups(self._pop_all())
            until = time.monotonic() + FLUSH_TIMEOUT
            while self._large.has_turns and time.monotonic() < until:
                self._large.go_on(at_once=True)
            if self._clearing.waits:
                self._clear(catch_up=True)

    def _add(self, one: Ended, now: float) -> None:
        large = self._large.knows(one.process_id)
        waiting = self._waiting.setdefault((one.process_id, one.decision.epoch), _Waiting())
        waiting.ended.append(one.light())
        gathers = not one.failed and (one.successor is not None or (large and not one.decision.children))
        is_full = len(waiting.ended) >= (PAGE if large else TOGETHER)
        waiting.due = min(waiting.due, now + GATHER_DELAY if gathers and not is_full else now)

    def _pop(self, until: float, keys: Iterable[Key] | None = None) -> list[Group]:
        """Take out what is due until then; of these processes, or of all. Under the lock."""
        among = self._waiting if keys is None else keys
        due = [key for key in among if key in self._waiting and self._waiting[key].due <= until]
        return [self._waiting.pop(key).ended for key in due]

    def _pop_all(self) -> list[Group]:
        with self._lock:
            return self._pop(NEVER)

    def _apply_groups(self, groups: Sequence[Group], take: Take | None = None) -> None:
        """Apply groups, or hand them over. Errors of servers are raised, when all were tried."""
        small, failed = list[Group](), list[Exception]()
        for group in groups:
            try:
                small.append(self._hand_over(group, take))
            except Exception as error:
                failed.append(error)
        self._wake_for(self._large.next_due)
        for some in batches(filter(None, small), TOGETHER):
            try:
                left = self._apply_together(some, take)
            except Exception as error:
                failed.append(error)
                continue
            for one in left:
                try:
                    self._apply(one, take)
                except Exception as error:
                    failed.append(error)
        if self._clearing.next_due <= time.monotonic():
            self._clear()
        if failed:
            raise failed[0]

    def _hand_over(self, group: Group, take: Take | None) -> Group:
        """Hand what has a value to whoever has the turn of a large graph; what is left to be applied here."""
        with_values = [one for one in group if not one.failed]
        if with_values and self._large.knows(group[0].process_id) and self._large.hand_over(with_values, take):
            return [one for one in group if one.failed]
        return group

    def _apply_together(self, groups: Sequence[Group], take: Take | None) -> list[Group]:
        """Apply groups; which are to be applied by themselves. Errors of servers are raised."""
        if len(groups) == 1 or tracing.is_on():  # a span is of one process
            return list(groups)
        try:
            effects, left = apply_together(self._resources, groups, take)
        except Exception as error:
            if is_of_servers(error):
                raise
            # By itself each is told that is to blame.
            log.debug("%d processes are not applied together (%s)", len(groups), in_a_line(error))
            return list(groups)
        self._note(effects)
        return left

    def _apply(self, group: Group, take: Take | None = None) -> None:
        """Apply a group. If a record is damaged, the others are applied, in halves of halves, and that one is told.
        Errors of servers are raised."""
        try:
            self._apply_one(group, take)
        except Exception as error:
            if is_of_servers(error):
                raise
            if len(group) == 1:
                tell(group[0].decision.id, error)
            else:
                self._apply(group[: len(group) // 2])
                self._apply(group[len(group) // 2 :])

    def _apply_one(self, group: Group, take: Take | None = None) -> list[Effect]:
        with tracing.applying([one.decision for one in group]) as span:
            effects = apply(self._resources, group, take)
            span.end_as(effects[0].applied.value)
        self._note(effects)
        return effects

    def _note(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if effect.size or effect.complete:
                self._large.note(effect.group[0].process_id, effect.size)
            self._clearing.note(effect)
        self._wake_for(self._clearing.next_due + PAUSE)  # whoever applies something before sees to it

    def _step(self) -> float | None:
        """Apply what is due; seconds until something is due again, None if nothing waits."""
        with self._applying:
            with self._lock:
                due = self._pop(time.monotonic())
            try:
                self._apply_groups(due)
            finally:
                self._large.go_on()
        return self._pause()

    def _tell(self, error: Exception) -> float | None:
        if isinstance(error, StoreError):
            log.warning("could not apply (%s): it is done again after the apply timeout", error)
        else:
            log.error("could not apply (%s): it is tried again after the apply timeout", in_a_line(error))
        return self._pause()

    def _pause(self) -> float | None:
        self._wakes_at = NEVER  # until it is known: whoever has something due meanwhile wakes the thread
        with self._lock:
            due = min((one.due for one in self._waiting.values()), default=NEVER)
        self._wakes_at = due = min(due, self._large.next_due, self._clearing.next_due + PAUSE)
        return None if due == NEVER else max(0.0, due - time.monotonic())

    def _wake_for(self, due: float) -> None:
        if due < self._wakes_at and self._start_thread():
            self._thread.wake()

    def _start_thread(self) -> bool:
        return self._thread.begin()

    def _clear(self, *, catch_up: bool = False) -> None:
        try:
            if catch_up:  # what was applied a moment ago is proven then
                self._resources.store.catch_up(CATCH_UP_TIMEOUT)
            self._clearing.write()
        except StoreError as error:  # only a hint: they are found applied when they are overdue
            log.warning("deadlines of applied decisions not cleared (%s)", error)
