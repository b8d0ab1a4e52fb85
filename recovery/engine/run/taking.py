"""What became ready by a batch, and is claimed by its slot to be run next: without a message, and in one update for all
of an actor. No more than can be run soon; the rest is enqueued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.engine.apply.apply_many import Ready
from recovery.engine.resources import Resources
from recovery.engine.steps import ClaimedTask, Ended, requeue_unrun
from recovery.errors import StoreError
from recovery.records import Decision
from recovery.records.ids import new_pass, record_id

if TYPE_CHECKING:
    from recovery.engine.run.slot import Slot

Fits = Callable[[str], int]
"""How many of an actor's tasks may be run after others."""


class Taking:
    """After one round of a batch. `heres` are what ended in it, as it was claimed, by their ids."""

    def __init__(self, resources: Resources, slot: Slot, heres: Mapping[str, ClaimedTask], fits: Fits) -> None:
        self._resources, self._slot, self._heres, self._fits = resources, slot, heres, fits
        self._room: dict[str, int] = {}
        self.taken: list[ClaimedTask] = []
        """What is claimed, for the next round."""

    def unlocked(self, ended: Sequence[Ended]) -> list[Ended]:
        """Claim what waited for nothing but one of these; which of these unlocked nothing that is claimed. Its graph
        learns of that later, with what comes next."""
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for one in ended:
            for task, name in one.task.unlocks.items() if not one.decision.children else ():
                if self._has_room(name):
                    wanted[name, one.decision.epoch][record_id(one.process_id, task)] = one
                    break
        went_on: set[str] = set()
        for (name, epoch), by in wanted.items():
            for decision in self._claim(name, epoch, by):
                one = by[decision.id]
                went_on.add(one.decision.id)
                self._slot.submit(replace(one, successor=decision.task_id))
        return [one for one in ended if one.decision.id not in went_on]

    def ready(self, ready: Sequence[Ready]) -> list[Decision]:
        """Claim one task of each process of those that became ready (`apply_many.TakeEach`)."""
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for some in ready:
            last = next((one for one in reversed(some.together) if one.decision.id in self._heres), None)
            first = next((key for key, name in some.actors.items() if self._has_room(name)), None)
            if last is not None and first is not None:
                wanted[some.actors[first], some.epoch][first] = last
        return [one for (name, epoch), by in wanted.items() for one in self._claim(name, epoch, by)]

    def _has_room(self, name: str) -> bool:
        """Whether there is room for one more, which takes it."""
        left = self._room.setdefault(name, self._fits(name))
        self._room[name] = left - 1
        return left > 0

    def _claim(self, name: str, epoch: int, by: Mapping[str, Ended]) -> list[Decision]:
        """Claim tasks of one actor, {decision: the end that made it ready}; which could be."""
        its, pass_key, holder = self._slot.actor(name).preferences, new_pass(), self._slot.holder
        first = {key: self._heres[ended.decision.id].scheduled.get(key) for key, ended in by.items()}
        first = {key: one if one is not None and one.call else None for key, one in first.items()}
        try:
            claimed = self._resources.store.decision_batches.claim_ready(
                name, first, epoch, pass_key, holder, its.worker_timeout, its.task_limit
            )
        except StoreError as error:
            requeue_unrun(self._resources, dict.fromkeys(first, pass_key), holder, error)  # it took place, perhaps
            raise
        for decision in claimed:
            ended = by[decision.id]
            self.taken.append(self._heres[ended.decision.id].followed_by(decision, ended))
        return claimed
