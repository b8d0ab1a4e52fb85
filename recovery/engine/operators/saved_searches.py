"""Saved searches: operators save searches under names, and other searches use them as `@NAME`.

Each change is one compare-and-set on the record as it was read, and has an entry in the audit log.

Earlier versions stored selections whose ages have signs, such as `ended:<90d`. They keep their meaning as long as they
are stored, but a person may take them for the opposite. Therefore they are rewritten in the form that names their
meaning.
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
    """Return the query of a search text, as of now. Names of saved searches are replaced by their texts. Raises
    InputError."""
    return parse(text, resources.store.now(), resources.store.saved_searches.texts)


def save_search(
    resources: Resources, name: str, text: str, reason: str = "", *, replace: bool = False, by: str | None = None
) -> SavedSearch:
    """Save a search under a name, and return it as it is saved. If the same search is saved already, nothing changes.

    Raises:
        InputError: The text is not a search, or another search has this name and `replace` is false.
    """
    with audited(resources, "search save", name, reason, by=by, search=text, replace=replace) as outcome:
        name = search_name(name)
        text = given.text(text, "search", longest=MAX_LENGTH).strip()
        if not text:
            raise InputError(f"{SIGN}{name} would be every process: say which, as in 'state:running idle:longer(1h)'")
        parse(text, resources.store.now(), resources.store.saved_searches.texts, name=name)
        new = SavedSearch(id=name, text=text, by=by or who(), reason=reason[:REASON_LENGTH], at=resources.store.now())
        return put(resources.store.saved_searches, new, lambda search: search.text, outcome, replace=replace)


def remove_search(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> SavedSearch:
    """Remove a saved search, and return it as it was.

    Raises:
        InputError: No search has this name, or other searches or operations use it and could then not be read.
    """
    with audited(resources, "search remove", name, reason, by=by) as outcome:
        search = named(resources.store.saved_searches, name, "search", "recovery search save")
        if users := _users(resources, search.id):
            raise InputError(f"{SIGN}{search.id} is a part of {', '.join(users)}: change or remove that first")
        take_out(resources.store.saved_searches, search)
        outcome.text = f"removed: {search.text}"
        return search


def unreadable(resources: Resources, searches: Mapping[str, SavedSearch]) -> dict[str, str]:
    """Return {name: reason} of the searches that cannot be read any more. They were written by another version, or use
    a search that was removed."""
    now, texts, errors = resources.store.now(), {name: search.text for name, search in searches.items()}, {}
    for name, text in texts.items():
        try:
            parse(text, now, lambda: texts, name=name, is_stored=True)
        except InputError as error:
            errors[name] = str(error).partition("\n")[0]
    return errors


def _users(resources: Resources, name: str) -> list[str]:
    """Return the saved searches and operations that use this search directly, of those that can be read."""
    now, texts, users = resources.store.now(), resources.store.saved_searches.texts(), list[str]()
    operations = {
        f"the operation {SIGN}{key}": operation.selection
        for key, operation in resources.store.saved_operations.all().items()
    }
    for user, text in {**{f"{SIGN}{key}": text for key, text in texts.items()}, **operations}.items():
        with suppress(InputError):
            if name in parse(text, now, lambda: texts, is_stored=True).saved:
                users.append(user)
    return users


REASON = "the age is written in the form that names its meaning"
"""The reason in the audit log for a rewritten selection."""


@dataclass(frozen=True, slots=True)
class StoredSelection:
    """A selection whose ages have signs, and the record that holds it."""

    record: SavedSearch | Schedule
    text: str

    @property
    def name(self) -> str:
        """The name of the saved search or schedule, as people know it."""
        return f"{SIGN}{self.record.id}" if isinstance(self.record, SavedSearch) else f"schedule {self.record.id}"


def with_signed_ages(resources: Resources) -> list[StoredSelection]:
    """Return the saved searches and schedules whose selections have ages with signs."""
    store = resources.store
    searches = [StoredSelection(saved, saved.text) for saved in store.saved_searches.all().values()]
    schedules = [
        StoredSelection(schedule, schedule.orders.selection)
        for schedule in store.schedules.all().values()
        if schedule.orders is not None
    ]
    return [stored for stored in (*searches, *schedules) if has_signed_ages(stored.text)]


def workers_that_need_signs(resources: Resources) -> list[str]:
    """Return the names of living workers of an earlier version, which cannot read an age without a sign."""
    return sorted(worker.name for worker in resources.store.overview.workers_alive() if worker.application is None)


def rewrite_signed_ages(resources: Resources) -> list[StoredSelection]:
    """Rewrite all selections whose ages have signs, and return those that were rewritten. If a living worker could not
    read the new form, nothing is rewritten. A selection is left as it is if somebody else changes it at this moment, or
    if its new text would be too long."""
    if workers_that_need_signs(resources):
        return []
    return [stored for stored in with_signed_ages(resources) if _rewrite(resources, stored)]


def _rewrite(resources: Resources, stored: StoredSelection) -> bool:
    try:
        text = rewritten(stored.text)
    except InputError:  # the new text would be too long
        return False
    record = stored.record
    with audited(resources, "selection rewrite", stored.name, REASON, before=stored.text, after=text) as outcome:
        if isinstance(record, SavedSearch):
            is_rewritten = resources.store.saved_searches.replace(record.evolve(text=text))
        else:
            assert record.orders is not None, "only schedules that order an operation have a selection"
            orders = record.orders.evolve(selection=text)
            is_rewritten = resources.store.schedules.save(record.evolve(orders=orders))
        outcome.text = "rewritten" if is_rewritten else "left: somebody else changed it just now"
    return is_rewritten


def unknown_types(resources: Resources, query: Query) -> list[str]:
    """Return a message for each unknown process type that a search asks for, as `unknown_type` does."""
    names = dict.fromkeys(_types_asked_for(query.tree))
    return [text for name in names if (text := unknown_type(resources, name)) is not None]


def _types_asked_for(node: Node) -> Iterator[str]:
    """Yield the process types that a search asks for, except those that it excludes with `not`."""
    match node:
        case Term("type", Comparison.IS, value):
            yield str(value)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _types_asked_for(part)
