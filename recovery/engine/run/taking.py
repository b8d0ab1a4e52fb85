"""What became ready by a batch, and is claimed by its slot to be run next: without a message, and in one update for all
of an actor. No more than there is room for; the rest is enqueued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from recovery.engine.apply.apply import Ready
from recovery.engine.run.trying import Place
from recovery.engine.steps import ClaimedTask, Ended, requeue_unrun
from recovery.errors import StoreError
from recovery.records import Decision
from recovery.records.ids import new_pass, record_id


class Taking:
    """After one round of a batch. `heres` are what ended in it, as it was claimed, by their ids; `room` tells how many
    of an actor's tasks may be run next."""

    def __init__(self, place: Place, heres: Mapping[str, ClaimedTask], room: Callable[[str], int]) -> None:
        self._place, self._heres, self._room_for = place, heres, room
        self._room: dict[str, int] = {}
        self.taken: list[ClaimedTask] = []
        """What is claimed, for the next round."""

    def unlocked(self, ended: Sequence[Ended]) -> list[Ended]:
        """Claim what waited for nothing but one of these: ready whatever its graph says, which learns of it later, with
        what comes next. These, each with its successor if one is claimed."""
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for one in ended:
            for task, name in one.task.unlocks.items() if not (one.decision.children or one.failed) else ():
                if self._has_room(name):
                    wanted[name, one.decision.epoch][record_id(one.process_id, task)] = one
                    break
        successors: dict[str, str] = {}
        for (name, epoch), by in wanted.items():
            for decision in self._claim(name, epoch, by):
                successors[by[decision.id].decision.id] = decision.task_id
        return [one.followed(successors.get(one.decision.id)) for one in ended]

    def ready(self, ready: Sequence[Ready]) -> list[Decision]:
        """Claim one task of each process of those that became ready (`apply.Take`)."""
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for some in ready:
            last = next((one for one in reversed(some.group) if one.decision.id in self._heres), None)
            first = next((key for key, name in some.actors.items() if self._has_room(name)), None)
            if last is not None and first is not None:
                wanted[some.actors[first], some.epoch][first] = last
        return [one for (name, epoch), by in wanted.items() for one in self._claim(name, epoch, by)]

    def _has_room(self, name: str) -> bool:
        """Whether there is room for one more, which takes it."""
        left = self._room.setdefault(name, self._room_for(name))
        self._room[name] = left - 1
        return left > 0

    def _claim(self, name: str, epoch: int, by: Mapping[str, Ended]) -> list[Decision]:
        """Claim tasks of one actor, {decision: the end that made it ready}; which could be."""
        its, pass_key, place = self._place.actor(name).preferences, new_pass(), self._place
        in_batch = len(self._heres) > 1
        try:
            claimed = place.resources.store.decisions.claim_ready(
                name, list(by), epoch, pass_key, place.holder, its.worker_timeout, its.task_limit, in_batch=in_batch
            )
        except StoreError as error:
            requeue_unrun(place.resources, dict.fromkeys(by, pass_key), place.holder, error)  # it took place, perhaps
            raise
        for decision in claimed:
            ended = by[decision.id]
            self.taken.append(self._heres[ended.decision.id].followed_by(decision, ended))
        return claimed
