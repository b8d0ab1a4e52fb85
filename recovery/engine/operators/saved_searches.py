"""Searches under names: what an operator saves, and what others read with `@NAME` in it.

Each change is one compare-and-set on the record as it was read, and an entry in the audit log.

Earlier versions stored selections with ages that have signs, such as `ended:<90d`. They keep their meaning for as long
as they are stored; a person who reads them may take them for the opposite. Each is rewritten by one compare-and-set on
the record that it was read from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from recovery.engine.lookup import unknown_type
from recovery.engine.operators.auditing import audited, who
from recovery.engine.operators.saving import named, put, take_out
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.limits import REASON_LENGTH
from recovery.records import SavedSearch, given
from recovery.records.schedule import Schedule
from recovery.records.search_names import SIGN, search_name
from recovery.search import And, Node, Or, Query, Term, has_signed_ages, parse, rewritten
from recovery.search.language import MAX_LENGTH
from recovery.search.query import Comparison


def read_search(resources: Resources, text: str) -> Query:
    """The search that a text is, as of now, with what is saved in the place of names. Raises InputError."""
    return parse(text, resources.store.now(), resources.store.saved_searches.texts)


def save_search(
    resources: Resources, name: str, text: str, reason: str = "", *, replace: bool = False, by: str | None = None
) -> SavedSearch:
    """Give a search a name; as it is saved. One that is saved already stays as it is. Raises InputError for what is no
    search, and where another is saved under this name, unless that is to be replaced."""
    with audited(resources, "search save", name, reason, by=by, search=text, replace=replace) as outcome:
        name = search_name(name)
        text = given.text(text, "search", longest=MAX_LENGTH).strip()
        if not text:
            raise InputError(f"{SIGN}{name} would be every process: say which, as in 'state:running idle:longer(1h)'")
        parse(text, resources.store.now(), resources.store.saved_searches.texts, name=name)
        new = SavedSearch(id=name, text=text, by=by or who(), reason=reason[:REASON_LENGTH], at=resources.store.now())
        return put(resources.store.saved_searches, new, lambda search: search.text, outcome, replace=replace)


def remove_search(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> SavedSearch:
    """Forget a saved search; as it was. Raises InputError where there is none of this name, and where others have it in
    them, which could not be read any more."""
    with audited(resources, "search remove", name, reason, by=by) as outcome:
        found = named(resources.store.saved_searches, name, "search", "recovery search save")
        if users := _users(resources, found.id):
            raise InputError(f"{SIGN}{found.id} is a part of {', '.join(users)}: change or remove that first")
        take_out(resources.store.saved_searches, found)
        outcome.text = f"removed: {found.text}"
        return found


def unreadable(resources: Resources, searches: Mapping[str, SavedSearch]) -> dict[str, str]:
    """{name: why} of those that can't be read any more: written by another version, or with a part that is gone."""
    now, texts, found = resources.store.now(), {name: one.text for name, one in searches.items()}, {}
    for name, text in texts.items():
        try:
            parse(text, now, lambda: texts, name=name, is_stored=True)
        except InputError as error:
            found[name] = str(error).partition("\n")[0]
    return found


def _users(resources: Resources, name: str) -> list[str]:
    """Return the saved searches and operations that have this search in them themselves, of those that can be read."""
    now, texts, found = resources.store.now(), resources.store.saved_searches.texts(), list[str]()
    operations = {
        f"the operation {SIGN}{key}": one.selection for key, one in resources.store.saved_operations.all().items()
    }
    for user, text in {**{f"{SIGN}{key}": text for key, text in texts.items()}, **operations}.items():
        with suppress(InputError):
            if name in parse(text, now, lambda: texts, is_stored=True).saved:
                found.append(user)
    return found


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


def unknown_types(resources: Resources, query: Query) -> list[str]:
    """Return what to say of each unknown process type that a search asks for, as `unknown_type` does."""
    names = dict.fromkeys(_types_asked_for(query.tree))
    return [text for name in names if (text := unknown_type(resources, name)) is not None]


def _types_asked_for(node: Node) -> Iterator[str]:
    """The process types of a search, except of what it leaves out by `not`."""
    match node:
        case Term("type", Comparison.IS, value):
            yield str(value)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _types_asked_for(part)
