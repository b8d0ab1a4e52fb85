"""Whatever stands where a trace should be stops nothing, and is told of nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Binary, Decimal128, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as api

from recovery.health import Level, examine
from recovery.records import Decision, Process, Trace, from_document
from recovery.records.record import trace_of
from recovery.store import definitions, schema
from recovery.tracing.opened import context_of
from tests.examples import examples
from tests.tracing.conftest import Traces
from tests.waiting import wait_until
from tests.world import World, by_message_only, check_quiet

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NONE = [
    *("", GOOD.upper(), GOOD + "\n", GOOD + "-00", GOOD.replace("4b", "4B"), "x" * 1000, f"ff{GOOD[2:]}"),
    *(f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{'1' * 32}-{'0' * 16}-01"),
]
"""Texts that are no `traceparent`."""
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{14,18}-[0-9a-f]{1,4}", fullmatch=True),
    st.sampled_from([GOOD, *NONE]),
)
SCALARS = st.one_of(
    TEXTS, st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.datetimes(),
    st.sampled_from([Binary(b"\x00"), Decimal128("1"), ObjectId(), Timestamp(1, 1)]),
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS | st.fixed_dictionaries({}, optional={"parent": SCALARS, "state": SCALARS, "type": SCALARS}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abz.$", min_size=1), inner, max_size=3),
    max_leaves=5,
)


@given(ANYTHING)
@examples(200)
def test_it_is_a_trace_or_none(value: object) -> None:
    found = trace_of(value)
    process = {"_id": "p", "type": "t", "args": "", "state": "running", "epoch": 0, "trace": value}
    assert from_document(Process, process).trace == found
    outcome = {"pass": "x", "trace": value}
    one = {"_id": "p/t", "actor": "a", "epoch": 0, "state": "finished", "trace": value, "outcome": outcome}
    decision = from_document(Decision, one)
    assert decision.trace == found and decision.outcome is not None and decision.outcome.trace == found
    under = api.get_current_span(context_of(found)).get_span_context()
    assert under.is_valid == (found is not None)
    if found is not None:
        assert found.trace_id == f"{under.trace_id:032x}" and found.is_sampled == under.trace_flags.sampled


@pytest.mark.parametrize("text", NONE)
def test_what_is_none_is_not(text: str) -> None:
    assert trace_of({"parent": text}) is None


def test_what_is_one_is_kept() -> None:
    value = {"parent": GOOD, "state": "vendor=1", "type": "order"}
    assert trace_of(value) == Trace(parent=GOOD, state="vendor=1", type="order")
    assert trace_of(value | {"state": "v=" + "x" * 600, "type": 3}) == Trace(parent=GOOD)


def test_no_validator_asks_about_it() -> None:
    """So a worker of a version before does not take it out of the validators, nor one of this put it in."""
    assert "trace" not in str(definitions.VALIDATORS)


SPOILT: list[Any] = ["", "00-", GOOD, 7, 1.5, True, [], [GOOD], {}, {"parent": 5}, {"parent": "00-xyz", "type": []}]
SPOILT += [{"parent": GOOD, "state": {"a": 1}, "type": "x" * 10_000}, {"parent": GOOD.upper()}, Decimal128("1")]


@pytest.mark.parametrize("traced", [True, False])
def test_processes_go_on_whatever_it_is(world: World, traced: bool, caplog: pytest.LogCaptureFixture) -> None:
    pack = world.app.actor("pack")(lambda item, _before=None: item)
    world.app.process("order")(lambda: pack.schedule("two", pack.schedule("one")))
    database, ids = world.store.database, []
    world.tell()
    traces = Traces()
    for value in SPOILT:
        with traces.on():
            process_id = world.start("order")
        ids.append(process_id)
        with by_message_only():
            world.take_one("order")
        for name in (schema.PROCESSES, schema.DECISIONS):
            database[name].update_many({"_id": {"$regex": f"^{process_id}"}}, {"$set": {"trace": value}})
        # Found by a scanner: its message is lost, and what is decided is applied again.
        world.redis.flushdb()
        start = {"_id": f"{process_id}/start"}
        database[schema.DECISIONS].update_one(
            start, [{"$set": {"outcome.trace": {"$literal": value}, "recoveryTime": "$$NOW"}}]
        )

    def ended() -> bool:
        world.pump()
        world.scan()
        return database[schema.PROCESSES].count_documents({"state": "finished"}) == len(SPOILT)

    if traced:
        with traces.on():
            wait_until(ended, 20, "the ends of all")
    else:
        wait_until(ended, 20, "the ends of all")
    check_quiet(world, ids[0])
    assert [world.app.result(one, timeout=0) for one in ids] == ["two"] * len(ids)
    damage = next(one for one in examine(world.app.resources) if one.name == "damage")
    assert damage.level is Level.OK, damage
    assert not [line for line in caplog.messages if "trace" in line or "damage" in line]
