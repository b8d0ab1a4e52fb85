"""Claims tasks that became ready through a batch, for its slot to run next.

They need no message, and one update claims all tasks of an actor. No more tasks are claimed than the next batch may
hold; the others are enqueued.
"""

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
    """The claims after one round of a batch.

    `heres` are the claimed tasks of this round by decision id. `room` returns how many of an actor's tasks may run
    next.
    """

    def __init__(self, place: Place, heres: Mapping[str, ClaimedTask], room: Callable[[str], int]) -> None:
        self._place, self._claimed_tasks, self._room_for = place, heres, room
        self._room: dict[str, int] = {}
        self.taken: list[ClaimedTask] = []
        """The tasks claimed for the next round."""

    def unlocked(self, ended: Sequence[Ended]) -> list[Ended]:
        """Claim tasks that waited only for one of these ended tasks.

        They are ready whatever the graph says. The graph learns of the ended task later, together with its successors.

        Returns:
            The ended tasks, each with its successor if one was claimed.
        """
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for end in ended:
            for task, name in end.task.unlocks.items() if not (end.decision.children or end.failed) else ():
                if self._has_room(name):
                    wanted[name, end.decision.epoch][record_id(end.process_id, task)] = end
                    break
        successors: dict[str, str] = {}
        for (name, epoch), ends in wanted.items():
            for decision in self._claim(name, epoch, ends):
                successors[ends[decision.id].decision.id] = decision.task_id
        return [end.followed(successors.get(end.decision.id)) for end in ended]

    def ready(self, ready: Sequence[Ready]) -> list[Decision]:
        """Claim one task per process of those that became ready (`apply.Take`). Return the claimed decisions."""
        wanted: dict[tuple[str, int], dict[str, Ended]] = defaultdict(dict)
        for tasks in ready:
            last_end = next((end for end in reversed(tasks.group) if end.decision.id in self._claimed_tasks), None)
            first_ready = next((key for key, name in tasks.actors.items() if self._has_room(name)), None)
            if last_end is not None and first_ready is not None:
                wanted[tasks.actors[first_ready], tasks.epoch][first_ready] = last_end
        return [decision for (name, epoch), ends in wanted.items() for decision in self._claim(name, epoch, ends)]

    def _has_room(self, name: str) -> bool:
        """Return whether one more task of the actor may be claimed, and count it."""
        remaining = self._room.setdefault(name, self._room_for(name))
        self._room[name] = remaining - 1
        return remaining > 0

    def _claim(self, name: str, epoch: int, ends: Mapping[str, Ended]) -> list[Decision]:
        """Claim tasks of one actor, given with the end that made each ready. Return the decisions that could be
        claimed."""
        preferences, pass_key, place = self._place.actor(name).preferences, new_pass(), self._place
        in_batch = len(self._claimed_tasks) > 1
        try:
            claimed = place.resources.store.decisions.claim_ready(
                name,
                list(ends),
                epoch,
                pass_key,
                place.holder,
                preferences.worker_timeout,
                preferences.task_limit,
                in_batch=in_batch,
            )
        except StoreError as error:
            # The claim may have succeeded.
            requeue_unrun(place.resources, dict.fromkeys(ends, pass_key), place.holder, error)
            raise
        for decision in claimed:
            end = ends[decision.id]
            self.taken.append(self._claimed_tasks[end.decision.id].followed_by(decision, end))
        return claimed
