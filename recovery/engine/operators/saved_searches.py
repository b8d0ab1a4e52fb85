"""Searches under names: what an operator saves, and what others read with `@NAME` in it.

Each change is one compare-and-set on the record as it was read, and an entry in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from recovery.engine.operators.auditing import audited
from recovery.engine.operators.operator import REASON_LENGTH, who
from recovery.engine.resources import Resources
from recovery.errors import InputError
from recovery.records import SavedSearch, given
from recovery.records.search_names import SIGN, search_name
from recovery.search import Query, parse
from recovery.search.language import MAX_LENGTH
from recovery.search.pointing import no_search


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
        outcome.text = "saved"
        before = resources.store.saved_searches.all().get(name)
        if before is not None and before.text == text:
            outcome.text = "was saved already"
            return before
        new = SavedSearch(id=name, text=text, by=by or who(), reason=reason[:REASON_LENGTH], at=resources.store.now())
        if before is None:
            saved = resources.store.saved_searches.insert(new)
        elif replace:
            new = new.evolve(version=before.version)
            outcome.text = f"saved in the place of: {before.text}"
            saved = resources.store.saved_searches.replace(new)
        else:
            at = f", at {before.at:%Y-%m-%d %H:%M:%S} UTC" if before.at else ""
            raise InputError(
                f"{SIGN}{name} is saved already, by {before.by}{at}: {before.text}\nGive --replace if it is to be "
                "another one, or take another name"
            )
        if not saved:
            raise InputError(f"{SIGN}{name} was changed by somebody else just now: look at it, and try again")
        return new


def remove_search(resources: Resources, name: str, reason: str = "", *, by: str | None = None) -> SavedSearch:
    """Forget a saved search; as it was. Raises InputError where there is none of this name, and where others have it in
    them, which could not be read any more."""
    with audited(resources, "search remove", name, reason, by=by) as outcome:
        found = resources.store.saved_searches.all()
        name = name.removeprefix(SIGN)
        if name not in found:
            raise InputError(no_search(name, found))
        users = [f"{SIGN}{other}" for other, saved in _named_in(resources, found).items() if name in saved]
        if users:
            raise InputError(f"{SIGN}{name} is a part of {', '.join(users)}: change or remove that first")
        if not resources.store.saved_searches.remove(found[name]):
            raise InputError(f"{SIGN}{name} was changed by somebody else just now: look at it, and try again")
        outcome.text = f"removed: {found[name].text}"
        return found[name]


def unreadable(resources: Resources, searches: Mapping[str, SavedSearch]) -> dict[str, str]:
    """{name: why} of those that can't be read any more: written by another version, or with a part that is gone."""
    now, texts, found = resources.store.now(), {name: one.text for name, one in searches.items()}, {}
    for name, text in texts.items():
        try:
            parse(text, now, lambda: texts, name=name, is_stored=True)
        except InputError as error:
            found[name] = str(error).partition("\n")[0]
    return found


def _named_in(resources: Resources, searches: Mapping[str, SavedSearch]) -> dict[str, tuple[str, ...]]:
    """{name: the saved searches that it has itself}, of those that can be read."""
    now, texts = resources.store.now(), {name: one.text for name, one in searches.items()}
    found = dict[str, tuple[str, ...]]()
    for name, text in texts.items():
        with suppress(InputError):
            found[name] = parse(text, now, lambda: texts, name=name, is_stored=True).saved
    return found
