"""Every record goes to a document and comes back the same, through BSON as well."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

import bson
import pytest
from bson.codec_options import CodecOptions
from hypothesis import given
from hypothesis import strategies as st

from recovery import records
from recovery.errors import DamagedRecord
from recovery.records import (
    Child,
    Decision,
    DecisionState,
    Graph,
    Process,
    Record,
    Task,
    Trace,
    field_name,
    from_document,
    required,
    shapes_of,
    to_document,
)
from recovery.records.ids import ActorName, Epoch
from tests.examples import examples

EXPORTED = [getattr(records, name) for name in records.__all__]
ALL = [kind for kind in EXPORTED if isinstance(kind, type) and issubclass(kind, Record) and kind not in (Record, Trace)]
"""A new kind of record is tested with the others."""

# MongoDB keeps milliseconds; keys of subdocuments are task ids, so letters and digits.
TIMES = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
TEXTS = st.text("ab.$/é\U0001f600\0", max_size=5)
KEYS = st.from_regex(r"[a-z2-7]{1,16}", fullmatch=True)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 2**40),
    float: st.floats(0, 1e6),
    bool: st.booleans(),
    datetime: TIMES,
    Epoch: st.integers(0, 2**40),
    ActorName: st.from_regex(r"[A-Z][A-Za-z0-9_.-]{0,7}", fullmatch=True),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if hint in PLAIN:
        return PLAIN[hint]
    inner = [arg for arg in get_args(hint) if arg is not type(None)]
    if get_origin(hint) is tuple:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if get_origin(hint) is Literal:
        return st.sampled_from(inner)
    if get_origin(hint) is dict:
        return st.dictionaries(KEYS, values(inner[1]), max_size=3)
    if inner:
        return st.none() | values(inner[0])
    if hint is Trace:  # no other text is one
        return st.from_regex("00-[0-9a-f]{31}1-[0-9a-f]{15}1-[0-9a-f]{2}", fullmatch=True).map(
            lambda at: Trace(parent=at)
        )
    if issubclass(hint, Record):
        return instances(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    raise AssertionError(f"no values are known of {hint}")


def instances(cls: type[Record]) -> st.SearchStrategy[Any]:
    """Records of a class, with any values in their fields."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(15)
def test_comes_back_the_same(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(instances(kind))
    document = to_document(record)
    assert from_document(kind, document) == record
    stored: dict[str, Any] = bson.decode(bson.encode(document), CodecOptions(tz_aware=True, tzinfo=UTC))
    assert from_document(kind, stored) == record
    # An absent `recoveryTime` is what keeps a record out of the index; null would be in it.
    assert None not in document.values()


def test_names() -> None:
    assert [field_name(n) for n in ("id", "pass_key", "recovery_time", "actor", "taken_queued_at")] == [
        "_id", "pass", "recoveryTime", "actor", "takenQueuedAt",
    ]  # fmt: skip
    for kind in ALL:
        names = [field_name(field.name) for field in dataclasses.fields(kind)]
        assert len(set(names)) == len(names)


def test_a_document_as_it_is_stored() -> None:
    child = Child(id="c", actor="add", args="[[],{}]", deps=("b",), dependents={"d": "sum"}, delay=0.0)
    decision = Decision(id="p/t", actor="add", state=DecisionState.QUEUED, pass_key="k", children=(child,))
    stored = {"_id": "c", "actor": "add", "args": "[[],{}]", "deps": ["b"], "dependents": {"d": "sum"}, "delay": 0.0}
    assert to_document(decision) == {
        "_id": "p/t", "actor": "add", "state": "queued", "epoch": 0, "pass": "k", "attempts": 0, "timeouts": 0,
        "children": [stored],
    }  # fmt: skip


def test_an_empty_graph_keeps_the_fields_that_updates_rely_on() -> None:
    assert {"notFinished", "links", "finished", "failed"} <= to_document(Graph(id="p")).keys()


def test_missing_fields_take_the_defaults_and_unknown_ones_are_passed_over() -> None:
    assert from_document(
        Process, {"_id": "p", "type": "t", "args": "", "state": "running", "epoch": 0, "later": 1}
    ) == Process(id="p", type="t", args="")


def test_what_is_made_without_its_constructor_is_as_if_by_it() -> None:
    """By reading, of records without slots; the defaults of what is not there are its class's."""
    assert [kind for kind in ALL if kind.__dictoffset__] == [Decision]
    read = from_document(Decision, {"_id": "p/t", "actor": "add", "state": "queued", "epoch": 0})
    made = Decision(id="p/t", actor="add", state=DecisionState.QUEUED)
    assert read == made
    assert (hash(read), repr(read)) == (hash(made), repr(made))
    assert pickle.loads(pickle.dumps(read)) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.actor = "another"  # type: ignore[misc]


def test_a_record_is_frozen_and_evolves() -> None:
    decision = Decision(id="p/t", actor="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision.actor = "b"  # type: ignore[misc]
    assert decision.evolve(attempts=2) == Decision(id="p/t", actor="a", attempts=2)
    assert (decision.process_id, decision.task_id) == ("p", "t")


@given(instances(Task))
@examples(15)
def test_a_call_has_all_of_a_small_task(task: Task) -> None:
    """But for what is looked at only where an attempt failed."""
    task = task.evolve(retry=None, context=None)
    decision = Decision(id=task.id, actor=task.actor, epoch=task.epoch, call=task.call(), fallible=task.fallible)
    assert decision.task() == task


def test_a_large_task_is_not_copied() -> None:
    assert Task(id="p/t", actor="a", args="x" * 3000).call() is None
    assert Task(id="p/t", actor="a", args="x", deps=("a" * 16,) * 100).call() is None
    assert Decision(id="p/t", actor="a").task() is None


def record_with_parts() -> tuple[Any, Any]:
    """A kind of record within another, and that other. Made anew, because what is known of a class is kept."""
    made: dict[str, Any] = {"bases": (Record,), "frozen": True, "slots": True, "kw_only": True}
    part: Any = dataclasses.make_dataclass("Part", [("pass_key", str), ("count", int, 0)], **made)
    fields: list[Any] = [
        ("id", str), ("first_part", part | None, None), ("parts", tuple[part, ...], ()), ("trace", Trace | None, None),
    ]  # fmt: skip
    return part, dataclasses.make_dataclass("Whole", fields, **made)


def test_a_document_has_shapes_and_required_fields() -> None:
    _, whole = record_with_parts()
    found = shapes_of(whole)
    assert list(found) == ["_id", "firstPart", "parts", "trace"]
    assert required(whole) == ("_id",)
    part = found["firstPart"]
    assert (part.exact, part.types, part.required) == (None, ("object",), ("pass",))
    assert {name: shape.types for name, shape in part.parts.items()} == {
        "pass": ("string",), "count": ("int", "long", "double"),
    }  # fmt: skip
    # Nothing that stands in the place of a trace is damage.
    assert (found["trace"].exact, found["trace"].types) == (None, ())


def test_a_record_without_what_updates_compare_is_damaged() -> None:
    assert required(Decision) == ("actor", "epoch", "_id", "state")
    assert required(Process) == ("args", "epoch", "_id", "state", "type")
    assert required(Graph) == ("epoch", "failed", "finished", "_id", "links", "notFinished", "version")


def test_a_record_within_a_record_is_read() -> None:
    part, whole = record_with_parts()
    document = {"_id": "w", "firstPart": {"pass": "k", "count": 1.0}, "parts": [{"pass": "l"}], "trace": "none"}
    assert from_document(whole, document) == whole(
        id="w", first_part=part(pass_key="k", count=1), parts=(part(pass_key="l"),)
    )


@pytest.mark.parametrize(
    ("document", "fields", "message"),
    [
        ({"_id": "w", "firstPart": 5}, ("firstPart",), "Whole w: its firstPart is a number, not an object"),
        ({"_id": "w", "firstPart": {}}, ("firstPart",), "Whole w: its firstPart is its pass is missing"),
        (
            {"_id": "w", "firstPart": {"pass": 5, "count": "x"}},
            ("firstPart",),
            "Whole w: its firstPart is its pass is a number, not a text; its count is a text, not a whole number",
        ),
        (
            {"_id": "w", "firstPart": "x", "parts": [{"pass": "k"}, {"pass": None}]},
            ("firstPart", "parts"),
            "Whole w: its firstPart is a text, not an object; its parts is at 1 its pass is null",
        ),
        ({"_id": 7}, ("_id",), "Whole 7: its _id is a number, not a text"),
        ({}, ("_id",), "Whole : its _id is missing"),
    ],
    ids=["no object", "missing", "two within", "two", "id", "nothing"],
)
def test_a_damaged_record_names_what_can_not_be_read(
    document: dict[str, Any], fields: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DamagedRecord) as damaged:
        from_document(record_with_parts()[1], document)
    assert str(damaged.value) == message
    assert (damaged.value.record, damaged.value.fields, damaged.value.kind) == (
        document.get("_id", ""),
        fields,
        "Whole",
    )


def test_what_is_told_of_damage_has_at_most_500_characters() -> None:
    with pytest.raises(DamagedRecord) as damaged:
        from_document(record_with_parts()[1], {"_id": "w" * 600, "parts": 5})
    assert str(damaged.value) == f"Whole {'w' * 494}"
