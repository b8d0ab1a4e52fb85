"""Selections that are stored with ages that have signs, such as `ended:<90d`, and their rewriting.

Earlier versions wrote them. They keep their meaning for as long as they are stored; a person who reads them may take
them for the opposite. Each is rewritten by one compare-and-set on the record that it was read from.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.engine.operators.auditing import audited
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import SavedSearch
from recovery.records.schedule import Schedule
from recovery.records.search_names import SIGN
from recovery.search import has_signed_ages, rewritten

REASON = "the age is written in the form that names its meaning"


@dataclass(frozen=True, slots=True)
class StoredSelection:
    """A selection with signed ages, and the record that has it."""

    record: SavedSearch | Schedule
    text: str

    @property
    def name(self) -> str:
        """The saved search or the schedule, as a person knows it."""
        return f"{SIGN}{self.record.id}" if isinstance(self.record, SavedSearch) else f"schedule {self.record.id}"


def with_signed_ages(resources: Resources) -> list[StoredSelection]:
    """Return the saved searches and the schedules whose selection has ages with signs."""
    store = resources.store
    searches = [StoredSelection(saved, saved.text) for saved in store.saved_searches.all().values()]
    schedules = [
        StoredSelection(schedule, schedule.orders.selection)
        for schedule in store.schedules.all().values()
        if schedule.orders is not None
    ]
    return [stored for stored in (*searches, *schedules) if has_signed_ages(stored.text)]


def workers_that_need_signs(resources: Resources) -> list[str]:
    """Return the names of living workers of an earlier version, which can't read an age without a sign."""
    return sorted(one.name for one in resources.store.overview.workers_alive() if one.application is None)


def rewrite_signed_ages(resources: Resources) -> list[StoredSelection]:
    """Rewrite all of them, unless a worker lives that could not read them then; return those that were. What somebody
    else changes at this moment, or what would be too long, is left as it is, and may be rewritten the next time."""
    if workers_that_need_signs(resources):
        return []
    return [stored for stored in with_signed_ages(resources) if _rewrite(resources, stored)]


def _rewrite(resources: Resources, stored: StoredSelection) -> bool:
    try:
        text = rewritten(stored.text)
    except InputError:  # it would be too long
        return False
    record = stored.record
    with audited(resources, "selection rewrite", stored.name, REASON, before=stored.text, after=text) as outcome:
        if isinstance(record, SavedSearch):
            done = resources.store.saved_searches.replace(record.evolve(text=text))
        else:
            assert record.orders is not None, "it was found by its selection"
            orders = record.orders.evolve(selection=text)
            done = resources.store.schedules.save(record.evolve(orders=orders))
        outcome.text = "rewritten" if done else "left: somebody else changed it just now"
    return done
