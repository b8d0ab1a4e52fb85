"""Labels that users give their processes, from the start to the search."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.errors import InputError
from recovery.records.search_names import MAX_LABELS, decode_labels, encode_labels, parse_labels
from recovery.search import parse
from recovery.settings import Settings
from tests.store.writing import contents
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)
    made.app.process("order")(lambda: 1)
    return made


def found(world: World, text: str) -> list[str]:
    return world.store.search.page(parse(text, world.store.now()), None, 10)


def test_by_its_labels_a_process_is_found(world: World) -> None:
    ours = world.start("order", labels={"customer": "acme", "region": "eu=west"})
    theirs = world.start("order", labels={"customer": "acme corp"})
    world.start("order")
    assert found(world, "label.customer:acme") == [ours]
    assert found(world, "label.customer:acme*") == [ours, theirs]
    assert found(world, 'label.customer:"acme corp"') == [theirs]
    assert found(world, "label.region:eu=west") == [ours]
    assert found(world, "label.region:* not label.customer:nobody") == [ours]
    assert decode_labels(world.process(ours).labels) == {"customer": "acme", "region": "eu=west"}
    assert world.bring_to_end(ours).labels == ("customer=acme", "region=eu=west")


def test_it_costs_an_index(world: World) -> None:
    for number in range(50):
        world.start("order", labels={"customer": f"c{number % 5}"})
    asked = {"$and": [{"_id": {"$gte": ""}}, {"labels": "customer=c1"}]}
    plan = world.store.database["processes"].find(asked).sort("_id", 1).limit(5).explain()
    assert plan["executionStats"]["totalDocsExamined"] == 5
    assert "labels" in str(plan["queryPlanner"]["winningPlan"])


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (5, "labels=5: must be a mapping"),
        ([("a", "b")], "must be a mapping"),
        ({"": "x"}, "label '': a name has"),
        ({"a b": "x"}, "label 'a b'"),
        ({"$where": "x"}, "label '\\$where'"),
        ({5: "x"}, "label 5"),
        ({"a": 5}, "label a=5: must be a text"),
        ({"a": {"$gt": ""}}, "label a="),
        ({"a": ""}, "label a=''"),
        ({"a": "x" * 201}, "at most|1 to 200"),
        ({f"a{number}": "x" for number in range(MAX_LABELS + 1)}, "21 of them; a process has at most 20"),
    ],
)
def test_what_can_be_no_label(world: World, labels: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        world.start("order", labels=labels)
    assert contents(world.store, "processes") == {}


def test_as_they_are_typed() -> None:
    assert parse_labels(["customer=acme", "q=a=b"]) == {"customer": "acme", "q": "a=b"}
    assert encode_labels({"b": "2", "a": "1"}) == ("a=1", "b=2")
    for wrong, told in ((["acme"], "NAME=VALUE"), (["a=1", "a=2"], "is given twice, '1' and '2'")):
        with pytest.raises(InputError, match=told):
            parse_labels(wrong)
