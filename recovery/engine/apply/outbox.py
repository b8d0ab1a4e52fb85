"""When finished decisions are applied.

A graph's update is what costs most of a task that does nothing. So a finished task waits for others of its process,
and they are applied in one update, where nobody waits for it to be applied:

- its successor was claimed on the spot, so the graph only has to learn it;
- its graph is large, and slow to write; then whoever has the turn applies it, with others' (`large_graphs`).

Nothing waits for longer than GATHER_DELAY, or a turn's pause, far below `apply_timeout`, from which on others would
apply it. That a decision is applied needs no haste at all to be written: see `clearing`.

Only decisions that a majority has come here: of an attempt whose end was acknowledged, or read so
(`repair.ended_tasks`). What is applied from memory after a failover is true, then, on any primary.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from recovery import tracing
from recovery.engine.apply.alone import apply_alone
from recovery.engine.apply.apply import apply
from recovery.engine.apply.apply_many import TakeEach, apply_many, take_one
from recovery.engine.apply.clearing import Clearing
from recovery.engine.apply.large_graphs import PAGE, LargeGraphs
from recovery.engine.isolation import in_a_line, is_of_servers, tell
from recovery.engine.resources import Resources
from recovery.engine.steps import Applied, Effect, Ended, Take
from recovery.errors import BrokerError, StoreError
from recovery.records import Decision
from recovery.store import batches
from recovery.threads import Background

log = logging.getLogger(__name__)

TOGETHER = 64
"""Finished tasks that are applied in one update, at most."""
GATHER_DELAY = 0.1
"""Seconds that a finished task waits for others."""
FLUSH_TIMEOUT = 1.0
"""Seconds that a flush goes on with turns, while others end tasks of their processes."""
CATCH_UP_TIMEOUT = 1.0
"""Seconds that a flush waits for the majority: a thousand times what it takes while all is well."""


class Applier:
    """Applies finished decisions for one process of a worker. Safe for threads."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._lock, self._flushing = threading.Lock(), threading.Lock()
        self._wake = threading.Event()
        self._buffers: dict[tuple[str, int], list[Ended]] = defaultdict(list)
        self._large = LargeGraphs(resources, self._apply)
        self._clearing = Clearing(resources)
        self._flusher = Background(self._flush_always, "applier")
        self._beside: list[Ended] = []
        self._some_beside, self._at_beside = threading.Event(), threading.Lock()
        self._applying = Background(self._apply_always, "applier beside")

    def submit(self, ended: Ended, take: Take | None = None) -> Decision | None:
        """Apply a decision, and what of its process waits; or let it wait.

        Of the tasks that become ready `take` may claim one for the caller; it is returned, not enqueued.
        """
        key = (ended.process_id, ended.decision.epoch)
        large = self._large.knows(ended.process_id)
        waits = not ended.failed and (ended.successor is not None or (large and not ended.decision.children))
        with self._lock:
            buffer = self._buffers[key]
            if not ended.failed:
                buffer.append(ended.light() if waits else ended)
            if waits and len(buffer) < (PAGE if large else TOGETHER) and self._start_flusher():
                return None
            together = self._buffers.pop(key)
        taken = self._hand_on(together, take) if together else None
        if ended.failed:
            self.apply([ended])
        return taken

    def submit_beside(self, ended: Ended) -> Decision | None:
        """Apply a decision at once, in another thread: nothing becomes ready by it, so its slot need not wait. While
        many wait there it does so itself."""
        with self._lock:
            beside = len(self._beside) < TOGETHER and self._start_applying()
            if beside:
                self._beside.append(ended.light())
        if not beside:
            return self.submit(ended)
        self._some_beside.set()
        return None

    def submit_all(self, ended: Sequence[Ended], take: TakeEach | None = None) -> None:
        """Apply decisions with values, of any processes, at once; or let them wait. Of the tasks that become ready
        `take` may claim some for the caller; the others are enqueued."""
        alone = [one for one in ended if one.may_be_alone]
        done = apply_alone(self._resources, alone) if alone else []
        for one in done:
            self._note([one], Effect(Applied.NOW, complete=True))
        others: dict[tuple[str, int], list[Ended]] = defaultdict(list)
        for one in ended:
            if one not in done:
                others[one.process_id, one.decision.epoch].append(one)
        groups: list[list[Ended]] = []
        for key, some in others.items():
            with self._lock:
                waits = self._large.knows(key[0]) and not any(one.decision.children for one in some)
                self._buffers[key] += [one.light() for one in some] if waits else some
                if not (waits and len(self._buffers[key]) < PAGE and self._start_flusher()):
                    groups.append(self._buffers.pop(key))
        self._apply_groups(groups, take)

    def _apply_groups(self, groups: Sequence[Sequence[Ended]], take: TakeEach | None = None) -> None:
        """Apply groups of decisions, each of one process and epoch. One's records must not hold up the others: what is
        wrong with them is told. Errors of servers are raised, when all were tried."""
        # A span is of one process.
        fit = [] if tracing.is_on() else [group for group in groups if not self._large.knows(group[0].process_id)]
        fit = fit if len(fit) > 1 else []
        others = set(map(id, fit))
        left = [group for group in groups if id(group) not in others]
        failed: Exception | None = None
        for some in batches(fit, TOGETHER):
            try:
                effects = apply_many(self._resources, some, take)
            except Exception as error:
                failed = error
                continue
            for group, effect in zip(some, effects, strict=True):
                if effect is not None:
                    self._note(group, effect)
                else:
                    left.append(group)
        for group in left:
            try:
                self._hand_on(group, take_one(group, take) if take is not None else None)
            except Exception as error:
                if is_of_servers(error):
                    failed = error
                else:
                    tell(group[0].decision.id, error)
        if failed is not None:
            raise failed

    def apply(self, together: Sequence[Ended]) -> list[Applied]:
        """Apply decisions of one process and epoch now; what came of each. One that failed comes alone."""
        effect = self._effect(together)
        if effect is None:
            came_of: dict[str, Applied] = {}
            for some in self._apart(together):
                came_of |= zip((one.decision.id for one in some), self.apply(some), strict=True)
            return [came_of[one.decision.id] for one in together]
        self._note(together, effect)
        return [effect.applied] * len(together)

    def _apart(self, together: Sequence[Ended]) -> Sequence[Sequence[Ended]]:
        """In what portions these can be applied, which can't be at once."""
        first = together[0]
        tasks = self._resources.store.graphs.open_among(
            first.process_id, first.decision.epoch, [one.task.task_id for one in together]
        )
        portions = [[one for one in together if (one.task.task_id in tasks) == is_open] for is_open in (True, False)]
        if not all(portions):
            return [[one] for one in together]
        return portions

    def flush(self) -> None:
        """Apply what waits, and clear the deadlines of what is applied. When it returns, that is done, by whomever; but
        for deadlines while the majority lags behind, and for what whoever has the turn of a large graph applies."""
        self._apply_beside()
        with self._flushing:
            self._apply_waiting()
            until = time.monotonic() + FLUSH_TIMEOUT
            while self._large.has_turns and time.monotonic() < until:
                self._large.go_on(at_once=True)
            if self._clearing.waits:
                self._clear(catch_up=True)

    def _hand_on(self, together: Sequence[Ended], take: Take | None = None) -> Decision | None:
        """Apply decisions of one process and epoch, or have them applied by whoever has the turn."""
        if self._large.knows(together[0].process_id):
            try:
                return self._large.hand_over(together, take)
            except BrokerError as error:
                log.debug("nobody can be handed what ended (%s)", error)
        return self._apply(together, take)

    def _apply(self, together: Sequence[Ended], take: Take | None = None) -> Decision | None:
        """Apply decisions of one process and epoch. If a record of several is damaged, the others are applied, in
        halves of halves, and that one is logged. What a decision alone fails with is raised, and errors of servers."""
        claimed: list[Decision] = []

        def take_and_note(ready: Mapping[str, str], epoch: int) -> Decision | None:
            taken = take(ready, epoch) if take is not None else None
            claimed.extend([taken] if taken is not None else [])
            return taken

        try:
            effect = self._effect(together, take_and_note if take is not None else None)
            if effect is None:
                self.apply(together)
                return None
        except Exception as error:
            if len(together) == 1 or is_of_servers(error):
                raise
            self._apply_halves(together)
            return next(iter(claimed), None)  # it was ready, and is its caller's, whatever failed after that
        self._note(together, effect)
        return effect.taken

    def _apply_halves(self, together: Sequence[Ended]) -> None:
        half = len(together) // 2
        for some in (together[:half], together[half:]):
            try:
                self._apply(some)
            except Exception as error:
                if is_of_servers(error):
                    raise
                tell(some[0].decision.id, error)

    def _effect(self, together: Sequence[Ended], take: Take | None = None) -> Effect | None:
        with tracing.applying([ended.decision for ended in together]) as span:
            effect = apply(self._resources, together, take)
            if effect is not None:
                span.end_as(effect.applied.value)
            return effect

    def _note(self, together: Sequence[Ended], effect: Effect) -> None:
        """Remember what is applied, and how large the graph is."""
        if effect.size or effect.complete:
            self._large.note(together[0].process_id, effect.size)
        with self._lock:
            self._start_flusher()
        if self._clearing.note(together, effect):
            self._clear()

    def _apply_beside(self) -> None:
        with self._at_beside:
            with self._lock:
                some, self._beside = self._beside, []
            if some:
                self.submit_all(some)

    def _apply_always(self) -> None:
        while self._some_beside.wait():
            self._some_beside.clear()
            try:
                self._apply_beside()
            except StoreError as error:
                log.warning("could not apply (%s): it is done again after the apply timeout", error)
            except Exception as error:  # nothing may end this thread
                log.error("could not apply (%s): it is tried again after the apply timeout", in_a_line(error))

    def _apply_waiting(self) -> None:
        with self._lock:
            buffers, self._buffers = self._buffers, defaultdict(list)
        self._apply_groups([together for together in buffers.values() if together])

    def _clear(self, *, catch_up: bool = False) -> None:
        try:
            if catch_up:  # what was applied a moment ago is proven then
                self._resources.store.catch_up(CATCH_UP_TIMEOUT)
            self._clearing.write()
        except StoreError as error:  # only a hint: they are found applied when they are overdue
            log.warning("deadlines of applied decisions not cleared (%s)", error)

    def _start_applying(self) -> bool:
        return self._applying.begin()

    def _start_flusher(self) -> bool:
        self._wake.set()
        return self._flusher.begin()

    def _flush_always(self) -> None:
        written, pause = time.monotonic(), threading.Event()
        while self._wake.wait():
            self._wake.clear()
            pause.wait(GATHER_DELAY)
            try:
                with self._flushing:
                    self._apply_waiting()
                    self._large.go_on()
                    if time.monotonic() > written + self._resources.settings.apply_timeout / 4:
                        self._clear()
                        written = time.monotonic()
            except StoreError as error:
                log.warning("could not apply (%s): it is done again after the apply timeout", error)
            except Exception as error:  # nothing may end this thread, which applies for all
                log.error("could not apply (%s): it is tried again after the apply timeout", in_a_line(error))
            if self._clearing.waits or self._large.has_turns:
                self._wake.set()
