"""The Schedule scanner: schedules that have a slot due, or wait for the end of an instance.

Each look is one slot (`engine.start.occurrences`): a schedule with more of them due is found again by the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from recovery.engine import Keys, Outbox, Resources, for_each, look_at, order
from recovery.records.schedule import Schedule
from recovery.repair import Diagnosis, Done
from recovery.rules import Rule, Surroundings
from recovery.scan.scanner import Page, Scanner
from recovery.schedule import damage_of
from recovery.schedule.judge import MAX_AHEAD

AHEAD = 2 * MAX_AHEAD.total_seconds()
"""Seconds from now beyond which no deadline is written: twice as far, because a deadline is counted from a moment that
was read a little earlier."""


class ScheduleScanner(Scanner[Schedule]):
    """Looks at schedules whose deadline is past. `keys` are those of the application's process types: of others no key
    can be told."""

    name = "schedules"
    page = 100

    def __init__(self, resources: Resources, outbox: Outbox, keys: Keys | None = None) -> None:
        super().__init__(resources, outbox)
        self._keys = keys or Keys({})

    def find(self) -> Page[Schedule]:
        found = self.resources.store.schedules.to_look_at(self.page, AHEAD, self._keys.process_types)
        damaged = {one.id: damage for one in found.records if (damage := damage_of(one)) is not None}
        sound = [one for one in found.records if one.id not in damaged]
        return Page(sound, [*found.damaged, *damaged.values()])

    def key(self, item: Schedule) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        self.resources.store.schedules.postpone(record, self.resources.settings.idle_timeout, AHEAD)

    def is_last(self, page: Page[Schedule]) -> bool:
        return not page  # until none is due: each look is one slot

    def judge(self, _page: Page[Schedule]) -> Diagnosis:
        """Nothing: what a schedule is to do is no repair of records."""
        return Diagnosis([], Surroundings(now=self.resources.store.now()))

    def _look_at(self, page: Page[Schedule]) -> Done:
        return +Counter({Rule.DUE: for_each(page.items, self._one, self.key, self.postpone)})

    def _one(self, schedule: Schedule) -> bool:
        look_at(self.resources, schedule, self._keys, order)
        return True  # whoever was first: it has moved on

    def postpone_healthy(self, page: Sequence[Schedule]) -> None:
        """Each look has moved its own."""
