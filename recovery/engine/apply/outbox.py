"""Holds finished tasks until they are applied, each with the time when it is due.

The update of a graph is the largest cost of a task that does nothing. So finished tasks of one process share one update
if no task waits for them, and the updates of many processes are sent together. A finished task is due:

    now                  a task may become ready through it
    after GATHER_DELAY   its successor was claimed on the spot, so the graph only has to learn about it
    at its turn          its graph is large and slow to write: one worker applies for all (`large_graphs`)

Due tasks are applied by the slot that put them here and waits for ready tasks, or by the outbox's own thread. That
thread also clears the deadlines of applied decisions (`clearing`). No task waits longer than GATHER_DELAY or the pause
of a turn. Both are far below `apply_timeout`, after which other workers apply the task. They also do so for the tasks
that a killed process leaves here.

Only decisions that a majority holds may be put here: those whose end was acknowledged, or that were read with majority
(`repair.ended_tasks`). So what is applied from memory after a failover is true on any primary.
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
"""Maximum number of processes whose tasks are applied together, and of tasks per process."""
GATHER_DELAY = 0.1
"""Seconds that a finished task waits for others."""
FLUSH_TIMEOUT = 1.0
"""Seconds for which a flush continues with the turns of large graphs while other slots end tasks of these processes."""
CATCH_UP_TIMEOUT = 1.0
"""Seconds that a flush waits for the majority. Normally this takes a millisecond."""

NEVER = float("inf")
Key = tuple[str, int]
"""A process id and an epoch."""


@dataclass(slots=True)
class _Waiting:
    """Finished tasks of one process and epoch, and the monotonic time when they are due."""

    ended: list[Ended] = field(default_factory=list)
    due: float = NEVER


class Outbox:
    """The finished decisions of one pool process that are still to be applied. Thread-safe."""

    def __init__(self, resources: Resources) -> None:
        self._lock, self._applying = threading.Lock(), threading.Lock()
        self._waiting: dict[Key, _Waiting] = {}
        self._large = LargeGraphs(resources, self._apply)
        self._clearing = Clearing(resources)
        self._thread, self._wakes_at = ServiceThread("outbox", self._step, self._log_failure), NEVER
        self._resources = resources

    def put(self, ended: Sequence[Ended], take: Take | None = None) -> None:
        """Have decisions applied when they are due, together with other waiting decisions of their processes.

        Decisions that are due now are applied before this returns if `take` is given, if more than TOGETHER processes
        are due, or if the outbox has no thread. A damaged record stops only itself.

        Args:
            ended: Finished tasks.
            take: Claims some of the tasks that become ready for the caller.

        Raises:
            StoreError: A server failed. Raised after all due groups were tried.
        """
        now, keys = time.monotonic(), dict.fromkeys((task.process_id, task.decision.epoch) for task in ended)
        has_thread = self._start_thread()
        with self._lock:
            for task in ended:
                self._add(task, now)
            if take is not None or not has_thread:
                due = self._pop(now if has_thread else NEVER, keys)
            elif (
                len(self._waiting) > TOGETHER
                and sum(waiting.due <= now for waiting in self._waiting.values()) > TOGETHER
            ):
                due = self._pop(now)
            else:
                due = []
            # For all other groups, the thread has been woken before.
            next_due = min((self._waiting[key].due for key in keys if key in self._waiting), default=NEVER)
        self._wake_for(next_due)
        self._apply_groups(due, take)

    def apply(self, group: Group) -> dict[str, Applied]:
        """Apply decisions of one process and epoch now. Return the results by decision id. Errors are raised."""
        return {ended.decision.id: effect.applied for effect in self._apply_one(group) for ended in effect.group}

    def flush(self) -> None:
        """Apply all waiting decisions, and clear the deadlines of applied decisions.

        On return this is done, by this thread or another, with two exceptions: deadlines stay while the majority lags
        behind, and tasks that were handed to the owner of a large graph's turn are applied by that owner.
        """
        with self._applying:
            self._apply_groups(self._pop_all())
            until = time.monotonic() + FLUSH_TIMEOUT
            while self._large.has_turns and time.monotonic() < until:
                self._large.go_on(at_once=True)
            if self._clearing.waits:
                self._clear(catch_up=True)

    def _add(self, ended: Ended, now: float) -> None:
        large = self._large.knows(ended.process_id)
        waiting = self._waiting.setdefault((ended.process_id, ended.decision.epoch), _Waiting())
        waiting.ended.append(ended.light())
        gathers = not ended.failed and (ended.successor is not None or (large and not ended.decision.children))
        is_full = len(waiting.ended) >= (PAGE if large else TOGETHER)
        waiting.due = min(waiting.due, now + GATHER_DELAY if gathers and not is_full else now)

    def _pop(self, until: float, keys: Iterable[Key] | None = None) -> list[Group]:
        """Remove and return the groups that are due until this monotonic time, of these keys or of all. Call with the
        lock held."""
        candidates = self._waiting if keys is None else keys
        due = [key for key in candidates if key in self._waiting and self._waiting[key].due <= until]
        return [self._waiting.pop(key).ended for key in due]

    def _pop_all(self) -> list[Group]:
        with self._lock:
            return self._pop(NEVER)

    def _apply_groups(self, groups: Sequence[Group], take: Take | None = None) -> None:
        """Apply the groups, or hand them over. Errors of servers are raised after all groups were tried."""
        small, errors = list[Group](), list[Exception]()
        for group in groups:
            try:
                small.append(self._hand_over(group, take))
            except Exception as error:
                errors.append(error)
        self._wake_for(self._large.next_due)
        for batch in batches(filter(None, small), TOGETHER):
            try:
                remaining = self._apply_together(batch, take)
            except Exception as error:
                errors.append(error)
                continue
            for group in remaining:
                try:
                    self._apply(group, take)
                except Exception as error:
                    errors.append(error)
        if self._clearing.next_due <= time.monotonic():
            self._clear()
        if errors:
            raise errors[0]

    def _hand_over(self, group: Group, take: Take | None) -> Group:
        """Hand the tasks that have values to the owner of the turn if the graph is large. Return the tasks that must be
        applied here."""
        with_values = [ended for ended in group if not ended.failed]
        if with_values and self._large.knows(group[0].process_id) and self._large.hand_over(with_values, take):
            return [ended for ended in group if ended.failed]
        return group

    def _apply_together(self, groups: Sequence[Group], take: Take | None) -> list[Group]:
        """Apply groups in one go. Return the groups that must be applied one by one. Errors of servers are raised."""
        if len(groups) == 1 or tracing.is_on():  # because a span covers one process
            return list(groups)
        try:
            effects, remaining = apply_together(self._resources, groups, take)
        except Exception as error:
            if is_of_servers(error):
                raise
            # Applied one by one, only the groups at fault fail and are logged.
            log.debug(
                "could not apply %d processes together (%s); they are applied one by one", len(groups), in_a_line(error)
            )
            return list(groups)
        self._note(effects)
        return remaining

    def _apply(self, group: Group, take: Take | None = None) -> None:
        """Apply a group. If a record is damaged, apply the rest by repeated halving, and log the damaged one.

        Errors of servers are raised.
        """
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
        with tracing.applying([ended.decision for ended in group]) as span:
            effects = apply(self._resources, group, take)
            span.end_as(effects[0].applied.value)
        self._note(effects)
        return effects

    def _note(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if effect.size or effect.complete:
                self._large.note(effect.group[0].process_id, effect.size)
            self._clearing.note(effect)
        self._wake_for(self._clearing.next_due + PAUSE)  # an apply before that time clears them too

    def _step(self) -> float | None:
        """Apply what is due. Return the seconds until the next group is due, or None if nothing waits."""
        with self._applying:
            with self._lock:
                due = self._pop(time.monotonic())
            try:
                self._apply_groups(due)
            finally:
                self._large.go_on()
        return self._pause()

    def _log_failure(self, error: Exception) -> float | None:
        if isinstance(error, StoreError):
            log.warning("could not apply finished tasks (%s); they are applied again after the apply timeout", error)
        else:
            log.error(
                "could not apply finished tasks (%s); they are applied again after the apply timeout", in_a_line(error)
            )
        return self._pause()

    def _pause(self) -> float | None:
        self._wakes_at = NEVER  # until it is computed below, so that a task added meanwhile wakes the thread
        with self._lock:
            due = min((waiting.due for waiting in self._waiting.values()), default=NEVER)
        self._wakes_at = due = min(due, self._large.next_due, self._clearing.next_due + PAUSE)
        return None if due == NEVER else max(0.0, due - time.monotonic())

    def _wake_for(self, due: float) -> None:
        if due < self._wakes_at and self._start_thread():
            self._thread.wake()

    def _start_thread(self) -> bool:
        return self._thread.begin()

    def _clear(self, *, catch_up: bool = False) -> None:
        try:
            if catch_up:  # so that the latest applies are proven
                self._resources.store.catch_up(CATCH_UP_TIMEOUT)
            self._clearing.write()
        except StoreError as error:  # harmless: they are found applied when they are overdue
            log.warning("could not clear the deadlines of applied decisions (%s)", error)
