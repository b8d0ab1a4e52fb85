"""Searches under names: saved, used, replaced, removed; and what can't be."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import InputError
from recovery.engine.operators.saved_searches import read_search, remove_search, save_search, unreadable
from recovery.records import SavedSearch
from recovery.store.operators.command_records import SavedSearches
from tests.world import World


def texts(world: World) -> dict[str, str]:
    return world.store.saved_searches.texts()


def entries(world: World) -> list[tuple[str, str, str]]:
    """Of the audit log, the newest first."""
    return [(one.what, one.target, one.outcome or "") for one in world.store.audit_log.newest(10)]


def test_from_name_to_name(world: World) -> None:
    saved = save_search(world.app.resources, "@stuck", " state:running idle:longer(1h) ", "each morning", by="ann")
    assert (saved.id, saved.text, saved.by, saved.reason) == (
        "stuck",
        "state:running idle:longer(1h)",
        "ann",
        "each morning",
    )
    assert saved.at is not None and abs((world.store.now() - saved.at).total_seconds()) < 60
    assert read_search(world.app.resources, "@stuck type:order").text == "(state:running idle:longer(1h)) type:order"
    save_search(world.app.resources, "stuck", "state:running idle:longer(2h)", replace=True, by="bob")
    assert read_search(world.app.resources, "@stuck").text == "state:running idle:longer(2h)"
    assert world.store.saved_searches.all()["stuck"].version == 1
    assert remove_search(world.app.resources, "@stuck", by="bob").text == "state:running idle:longer(2h)"
    assert texts(world) == {}
    assert entries(world) == [
        ("search remove", "@stuck", "removed: state:running idle:longer(2h)"),
        ("search save", "stuck", "saved in the place of: state:running idle:longer(1h)"),
        ("search save", "@stuck", "saved"),
    ]


def test_the_same_again_changes_nothing(world: World) -> None:
    first = save_search(world.app.resources, "stuck", "state:running", by="ann")
    assert save_search(world.app.resources, "stuck", "state:running", by="bob") == first
    assert save_search(world.app.resources, "stuck", "state:running", replace=True, by="bob") == first
    assert {one[2] for one in entries(world)} == {"saved", "was saved already"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("there", "state:broken", "@there is saved already, by ann, at 20"),
        ("there is", "state:broken", "name 'there is': the name of a search has letters, digits"),
        ("", "state:broken", "as in stuck-orders"),
        ("@", "state:broken", "as in stuck-orders"),
        ("x" * 51, "state:broken", "at most 50"),
        ("new", "", "search=''"),
        ("new", "  ", "@new would be every process"),
        ("new", "stat:broken", "column 1: no field is called 'stat'; did you mean state?"),
        ("new", "@ther", "did you mean @there?"),
        ("new", "type:order @new", "column 12: @new would be a part of itself"),
        ("new", "@there @there " * 1000, "at most|1 to 10,000"),
    ],
)
def test_what_can_not_be_saved(world: World, name: str, text: str, said: str) -> None:
    save_search(world.app.resources, "there", "state:running", by="ann")
    with pytest.raises(InputError, match=said):
        save_search(world.app.resources, name, text)
    assert texts(world) == {"there": "state:running"}
    assert entries(world)[0][2].startswith("refused: ")


def test_not_a_part_of_itself_by_way_of_others(world: World) -> None:
    save_search(world.app.resources, "a", "state:running")
    save_search(world.app.resources, "b", "@a overdue")
    with pytest.raises(InputError, match="column 5: in @b, column 1: @a would be a part of itself"):
        save_search(world.app.resources, "a", "not @b", replace=True)
    # Two who were at it at once.
    a = world.store.saved_searches.all()["a"]
    assert world.store.saved_searches.replace(a.evolve(text="not @b"))
    with pytest.raises(InputError, match="in @a, column 5: in @b, column 1: @a would be a part of itself"):
        read_search(world.app.resources, "@a")
    found = unreadable(world.app.resources, world.store.saved_searches.all())
    assert found.keys() == {"a", "b"}


def test_what_others_have_in_them_is_not_removed(world: World) -> None:
    save_search(world.app.resources, "a", "state:running")
    save_search(world.app.resources, "b", "@a overdue")
    save_search(world.app.resources, "c", "not @a")
    with pytest.raises(InputError, match="@a is a part of @b, @c: change or remove that first"):
        remove_search(world.app.resources, "a")
    with pytest.raises(InputError, match="no search is saved as 'd'; there are @a, @b, @c"):
        remove_search(world.app.resources, "d")
    for name in ("b", "c", "a"):
        remove_search(world.app.resources, name)
    with pytest.raises(InputError, match="there is none"):
        remove_search(world.app.resources, "a")


def test_what_another_version_saved_is_told_and_can_be_replaced(world: World) -> None:
    world.store.database["savedSearches"].insert_one({"_id": "older", "text": "colour:red", "version": 0})
    save_search(world.app.resources, "fine", "state:running")
    found = unreadable(world.app.resources, world.store.saved_searches.all())
    assert found.keys() == {"older"} and "no field is called 'colour'" in found["older"]
    with pytest.raises(InputError, match="column 10: in @older, column 1: no field is called 'colour'"):
        read_search(world.app.resources, "(overdue @older)")
    save_search(world.app.resources, "older", "state:broken", replace=True)
    assert read_search(world.app.resources, "@older").text == "state:broken"


@pytest.mark.parametrize("what", ["insert", "replace", "remove"])
def test_of_two_at_once_one_is_told(world: World, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what != "insert":
        save_search(world.app.resources, "a", "state:running")
    step = getattr(SavedSearches, what)

    def late(self: Any, search: SavedSearch) -> bool:
        monkeypatch.undo()
        save_search(world.app.resources, "a", "state:aborted", replace=True)
        return bool(step(self, search))

    monkeypatch.setattr(SavedSearches, what, late)
    with pytest.raises(InputError, match="@a was changed by somebody else just now"):
        if what == "remove":
            remove_search(world.app.resources, "a")
        else:
            save_search(world.app.resources, "a", "state:broken", replace=True)
    assert texts(world) == {"a": "state:aborted"}
