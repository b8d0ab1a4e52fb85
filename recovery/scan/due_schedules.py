"""The Schedule scanner: starts due occurrences of schedules, and checks instances that schedules wait for.

Each look at a schedule handles one occurrence (`engine.start.occurrences`). A schedule with more due occurrences is
found again by the same run.
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
"""Maximum seconds between now and any stored deadline. Twice MAX_AHEAD, because a deadline is computed from a time
that was read slightly earlier."""


class ScheduleScanner(Scanner[Schedule]):
    """Looks at schedules whose deadline is past.

    `keys` are the key functions of the application's process types. Schedules of other types are skipped, because their
    keys can't be computed.
    """

    name = "schedules"
    page = 100

    def __init__(self, resources: Resources, outbox: Outbox, keys: Keys | None = None) -> None:
        super().__init__(resources, outbox)
        self._keys = keys or Keys({})

    def find(self) -> Page[Schedule]:
        schedules = self.resources.store.schedules.to_look_at(self.page, AHEAD, self._keys.process_types)
        damaged = {schedule.id: damage for schedule in schedules.records if (damage := damage_of(schedule)) is not None}
        sound = [schedule for schedule in schedules.records if schedule.id not in damaged]
        return Page(sound, [*schedules.damaged, *damaged.values()])

    def key(self, item: Schedule) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        self.resources.store.schedules.postpone(record, self.resources.settings.idle_timeout, AHEAD)

    def is_last(self, page: Page[Schedule]) -> bool:
        return not page  # until none is due, because each look handles one occurrence

    def judge(self, _page: Page[Schedule]) -> Diagnosis:
        """Return no findings: starting an occurrence is not a repair."""
        return Diagnosis([], Surroundings(now=self.resources.store.now()))

    def _look_at(self, page: Page[Schedule]) -> Done:
        return +Counter({Rule.DUE: for_each(page.items, self._look_at_schedule, self.key, self.postpone)})

    def _look_at_schedule(self, schedule: Schedule) -> bool:
        look_at(self.resources, schedule, self._keys, order)
        return True  # another worker may have been first, but the schedule has moved on

    def postpone_healthy(self, page: Sequence[Schedule]) -> None:
        """Do nothing: each look has moved the deadline of its schedule."""
