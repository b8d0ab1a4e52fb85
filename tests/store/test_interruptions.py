"""The list of what is broken: one record per task, the latest failure's; grouped, and costing what it gives."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.records import Interruption
from recovery.store import Selection, Store

ROWS = [
    ("p1/a", "order", "pay", "ValueError", "f1"),
    ("p1/b", "order", "pay", "ValueError", "f1"),
    ("p1x/a", "order", "pay", "ValueError", "f2"),
    ("p2/start", "order", "order", "KeyError", "f3"),
    ("p3/c", "trip", "pay", "ValueError", "f1"),
]


def interruption(key: str = "p/t", restarts: int = 0, message: str = "no", **changes: Any) -> Interruption:
    fields = {"type": "order", "actor": "pay", "kind": "ValueError", "fingerprint": "f", **changes}
    return Interruption(id=key, message=message, restarts=restarts, **fields)


@pytest.fixture
def rows(store: Store) -> Store:
    for key, process_type, actor, kind, mark in ROWS:
        store.interruptions.add(
            interruption(key, message=f"of {key}", type=process_type, actor=actor, kind=kind, fingerprint=mark)
        )
    return store


def test_added_once(store: Store) -> None:
    store.interruptions.add(interruption(message="{$first}"))
    (first,) = store.interruptions.of_process("p")
    assert first.message == "{$first}"
    assert first.at is not None
    store.interruptions.add(interruption(message="again"))
    assert store.interruptions.of_process("p") == [first]


def test_a_later_failure_takes_the_place_of_an_earlier_one_and_not_the_other_way_round(store: Store) -> None:
    for restarts, there in ((1, 1), (0, 1), (2, 2), (1, 2)):
        store.interruptions.add(interruption(restarts=restarts, message=str(restarts)))
        (found,) = store.interruptions.of_process("p")
        assert (found.restarts, found.message) == (there, str(there))
    store.interruptions.remove_before([("p/t", 2, 0), ("p/other", 9, 0)])
    assert store.interruptions.count(Selection()) == 1, "it is of the second restart itself"
    store.interruptions.remove_before([("p/t", 3, 0)])
    assert store.interruptions.count(Selection()) == 0


def test_who_is_late_leaves_what_was_listed_in_a_later_life(store: Store) -> None:
    """A process that is done again counts its tasks' restarts anew."""
    store.interruptions.add(interruption(reopened=2, restarts=0))
    store.interruptions.remove_before([("p/t", 2, 1)])
    assert store.interruptions.count(Selection()) == 1
    store.interruptions.remove_before([("p/t", 2, 2)])
    assert store.interruptions.count(Selection()) == 0


def test_the_life_of_the_process_comes_before_that_of_the_task(store: Store) -> None:
    """A process is listed under its start task, which may fail for the first time in the second life of the process."""
    lives = [((0, 3), (0, 3)), ((1, 0), (1, 0)), ((0, 4), (1, 0)), ((1, 1), (1, 1)), ((1, 0), (1, 1))]
    for (reopened, restarts), there in lives:
        store.interruptions.add(interruption(reopened=reopened, restarts=restarts))
        (found,) = store.interruptions.of_process("p")
        assert (found.reopened, found.restarts) == there


@pytest.mark.parametrize("life", [None, "first"])
def test_what_does_not_say_in_which_life_it_was_listed_is_the_earliest(store: Store, life: Any) -> None:
    """Of another program."""
    store.interruptions.add(interruption())
    update = {"q": {}, "u": {"$set": {"reopened": life}} if life else {"$unset": {"reopened": True}}}
    store.database.command("update", "interruptions", updates=[update], bypassDocumentValidation=True)
    store.interruptions.add(interruption(message="again"))
    (found,) = store.interruptions.of_process("p")
    assert (found.reopened, found.message) == (0, "again")


def test_what_was_listed_in_an_earlier_life_of_its_process_is_forgotten(store: Store) -> None:
    for key, reopened in (("p/start", 1), ("q/start", 1), ("r/start", 1)):
        store.interruptions.add(interruption(key, reopened=reopened, restarts=5))
    store.interruptions.remove_lives([("p/start", 1), ("q/start", 2)])
    assert [one.id for one in store.interruptions.page(Selection(), "", 10)] == ["p/start", "r/start"]
    store.interruptions.remove_kind([("p/start", 0), ("r/start", 1)], "KeyError")
    store.interruptions.remove_kind([("p/start", 0)], "ValueError")
    assert [one.id for one in store.interruptions.page(Selection(), "", 10)] == ["p/start", "r/start"]
    store.interruptions.remove_kind([("p/start", 1), ("r/start", 2)], "ValueError")
    assert store.interruptions.count(Selection()) == 0
    store.interruptions.remove_lives([])


def test_what_is_no_text_is_shown_as_one(rows: Store) -> None:
    """Of another program, past the validator: it hides no other of its page."""
    update = {"q": {"_id": "p1/b"}, "u": {"$set": {"message": 5, "kind": ["a"], "at": "yesterday"}}}
    rows.database.command("update", "interruptions", updates=[update], bypassDocumentValidation=True)
    found = {one.id: one for one in rows.interruptions.page(Selection(), "", 10)}
    assert found.keys() == {row[0] for row in ROWS}
    assert (found["p1/b"].message, found["p1/b"].kind, found["p1/b"].at) == ("5", "['a']", None)


def test_of_one_process(rows: Store) -> None:
    assert [one.id for one in rows.interruptions.of_process("p1")] == ["p1/a", "p1/b"]
    rows.interruptions.remove_all(["p1", "p3", "p9"])
    assert [one.id for one in rows.interruptions.page(Selection(), "", 10)] == ["p1x/a", "p2/start"]
    rows.interruptions.remove_all([])
    assert rows.interruptions.count(Selection()) == 2


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (Selection(), "p1/a p1/b p1x/a p2/start p3/c"),
        (Selection(type="order"), "p1/a p1/b p1x/a p2/start"),
        (Selection(actor="pay", kind="ValueError", fingerprint="f1"), "p1/a p1/b p3/c"),
        (Selection(type="trip", kind="KeyError"), ""),
    ],
)
def test_selected(rows: Store, selection: Selection, ids: str) -> None:
    found, after = list[str](), ""
    while page := rows.interruptions.page(selection, after, 2):
        assert len(page) <= 2
        found += [one.id for one in page]
        after = found[-1]
    assert " ".join(found) == ids
    assert rows.interruptions.count(selection) == len(found)
    assert sum(group.count for group in rows.interruptions.groups(selection)) == len(found)


def test_groups(rows: Store) -> None:
    first, *others = rows.interruptions.groups(Selection())
    assert (first.type, first.actor, first.kind, first.fingerprint, first.count) == (
        "order", "pay", "ValueError", "f1", 2,
    )  # fmt: skip
    assert first.message == f"of {first.example}"
    assert first.example in ("p1/a", "p1/b")
    assert first.first <= first.last
    assert [group.count for group in others] == [1, 1, 1]


@pytest.mark.parametrize("selection", [Selection(type="trip"), Selection(fingerprint="f3")])
def test_a_group_costs_what_it_gives(rows: Store, selection: Selection) -> None:
    found = rows.database["interruptions"].find(selection.filter()).explain()["executionStats"]
    assert (found["totalDocsExamined"], found["nReturned"]) == (1, 1)
