"""A record is one line of JSON, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.log_lines import JsonFormatter, PrintableRecord


class Spiteful:
    """A value whose texts can't be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text\nof mine")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text of mine")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]
ODD = st.sampled_from([float("nan"), float("inf"), CIRCLE, DEEP, Spiteful(), b"\xff", {1: {2}}, {("a",): 1}, 10**5000])
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=50)  # lone surrogates as well
VALUES = ODD | TEXTS | st.integers() | st.floats() | st.none() | st.dictionaries(TEXTS, st.integers(), max_size=3)
NAMES = TEXTS.filter(lambda name: name not in logging.makeLogRecord({}).__dict__ and name not in ("message", "asctime"))
ERRORS = st.none() | st.builds(ValueError, TEXTS) | st.builds(Unspeakable)


def written(record: logging.LogRecord) -> dict[str, Any]:
    """The one line of a record, read by a strict reader."""
    text = JsonFormatter().format(record)
    assert len(text.splitlines()) == 1 and text.isprintable(), text

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found: dict[str, Any] = json.loads(text.encode(), parse_constant=refuse)
    return found


def made(kind: type[logging.LogRecord], message: object, arguments: tuple[Any, ...] = (), error: Any = None) -> Any:
    return kind("a.logger", logging.WARNING, __file__, 1, message, arguments, error)


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([logging.LogRecord, PrintableRecord]),
    TEXTS | ODD,
    st.lists(VALUES, max_size=3),
    st.dictionaries(NAMES, VALUES, max_size=3),
    ERRORS,
)
def test_a_record_is_one_line_whatever_is_in_it(
    kind: type[logging.LogRecord], message: object, arguments: list[Any], extra: dict[str, Any], error: Any
) -> None:
    found: Any = None
    if error is not None:
        try:
            raise error
        except Exception:
            found = sys.exc_info()
    record = made(kind, message, tuple(arguments), found)
    record.__dict__.update(extra)
    line = written(record)
    assert line["level"] == "WARNING" and line["logger"] == "a.logger" and line["time"].endswith("Z")
    assert ("exception" in line) == (error is not None)
    ours = [name for name in extra if name.startswith("recovery")]
    assert ours or len(line.get("extra", {})) == len(extra)


@pytest.mark.parametrize("kind", [logging.LogRecord, PrintableRecord])
def test_texts_are_as_they_were_logged(kind: type[logging.LogRecord]) -> None:
    try:
        raise ValueError("a cause\nof two lines")
    except ValueError:
        record = made(kind, "Привет, %s\n%d", ("\x1b[31mred\u202e", 3), sys.exc_info())
    record.weight, record.task = 3, "a task of its own"
    line = written(record)
    assert line["message"] == "Привет, \x1b[31mred\u202e\n3"
    assert line["exception"].startswith("Traceback (most recent call last):\n  File ")
    assert line["exception"].endswith("ValueError: a cause\nof two lines")
    assert line["extra"] == {"weight": 3, "task": "a task of its own"}, "and in no one's way"


def test_arguments_that_do_not_fit_lose_nothing() -> None:
    assert written(made(logging.LogRecord, "%d kg of %s", ("three",)))["message"] == "%d kg of %s % ('three',)"
