"""A stored trace context is read if it is one; whatever else stands there is read as no trace."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.records.record import STATE_LENGTH, TYPE_LENGTH, Trace, trace_of

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


def test_a_trace_context_is_read() -> None:
    stored = {"parent": PARENT, "state": "congo=t61", "type": "order", "more": 1}
    assert trace_of(stored) == Trace(parent=PARENT, state="congo=t61", type="order")


@pytest.mark.parametrize(
    "stored",
    [
        None,
        PARENT,
        [PARENT],
        {},
        {"parent": None},
        {"parent": 5},
        {"parent": PARENT.encode()},
        {"parent": PARENT.upper()},
        {"parent": f"{PARENT}\n"},
        {"parent": PARENT.replace(TRACE_ID, "0" * 32)},
        {"parent": PARENT.replace("00f067aa0ba902b7", "0" * 16)},
        {"parent": PARENT.replace("00-", "01-", 1)},
    ],
)
def test_what_is_no_trace_context_is_read_as_none(stored: Any) -> None:
    assert trace_of(stored) is None


@pytest.mark.parametrize("name", ["state", "type"])
@pytest.mark.parametrize("value", ["", 5, ["a"], "a\nb", "\x1b[31m"])
def test_an_unreadable_part_of_a_trace_context_is_left_out(name: str, value: Any) -> None:
    assert trace_of({"parent": PARENT, name: value}) == Trace(parent=PARENT)


@pytest.mark.parametrize(("name", "longest"), [("state", STATE_LENGTH), ("type", TYPE_LENGTH)])
def test_a_part_that_is_too_long_is_left_out(name: str, longest: int) -> None:
    for text in ("x", "x" * longest):
        assert trace_of({"parent": PARENT, name: text}) == Trace(parent=PARENT).evolve(**{name: text})
    assert trace_of({"parent": PARENT, name: "x" * (longest + 1)}) == Trace(parent=PARENT)


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_a_trace_context_names_its_trace_and_whether_it_is_sampled(flags: str, is_sampled: bool) -> None:
    trace = Trace(parent=f"{PARENT[:-2]}{flags}")
    assert (trace.trace_id, trace.is_sampled) == (TRACE_ID, is_sampled)
