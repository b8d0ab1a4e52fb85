"""What callers give is checked for what it is, and shown so that it harms no terminal."""

from __future__ import annotations

import enum
import math
from datetime import timedelta
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.records import given


class Sly(str):
    """Compares and hashes as it likes."""

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Named(enum.StrEnum):
    ORDER = "order"


@pytest.mark.parametrize("value", ["x", "é\0", "x" * 500, Sly("order"), Named.ORDER])
def test_a_text_comes_back_as_an_exact_one(value: str) -> None:
    plain = given.text(value, "name")
    assert type(plain) is str
    assert plain == str.__str__(value)


@pytest.mark.parametrize(
    "value",
    ["", "x" * 501, "\ud800", Sly(""), b"order", bytearray(b"x"), {"$gt": ""}, ["x"], 5, 1.5, True, None, object],
)
def test_what_is_no_text_is_named(value: Any) -> None:
    with pytest.raises(InputError) as refused:
        given.text(value, "name")
    assert str(refused.value).startswith("name=")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("base", [5, -3, 2.5, 10**400])
def test_a_number_comes_back_as_an_exact_one(base: float) -> None:
    class Odd(type(base)):  # type: ignore[misc]
        def __ge__(self, _: object) -> bool:
            return True

        __le__ = __ge__

    plain = given.number(Odd(base))
    assert (type(plain), plain) == (type(base), base)
    assert given.number(True) is given.number("5") is None


def test_what_is_shown_is_short_and_harmless() -> None:
    class Raises:
        def __repr__(self) -> str:
            raise RuntimeError

    assert given.shown("\x1b[31m\u202e\x9b") == repr("\x1b[31m\u202e\x9b")
    assert len(given.shown("x" * 10**6)) < 100
    assert given.shown(Raises()).endswith("Raises>")


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0, 0), (1.5, 1.5), (math.inf, LONGEST), (10**400, LONGEST), ("5s", 5), ("1.5m", 90), (timedelta(hours=1), 3600)],
)
def test_seconds(value: Any, kept: float) -> None:
    assert given.seconds(value, "timeout") == kept


@pytest.mark.parametrize("value", [-1, -0.1, math.nan, True, "soon", "-5s", timedelta(-1), None, 1j, [1], {"$gt": 0}])
def test_what_is_no_time_is_named(value: Any) -> None:
    with pytest.raises(InputError, match=r"^timeout=.*: must be a duration"):
        given.seconds(value, "timeout")


class Xylophone:
    """Has no text to show."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "longest", "message"),
    [
        (5, 500, "name=5: must be a text of 1 to 500 characters, not an int"),
        ("", 500, "name='': must be a text of 1 to 500 characters; it has 0"),
        ("x" * 5, 4, "name='xxxxx': must be a text of 1 to 4 characters; it has 5"),
        ("x" * 2000, 1234, f"name='{'x' * 59}…: must be a text of 1 to 1,234 characters; it has 2,000"),
        (b"x", 1234, "name=b'x': must be a text of 1 to 1,234 characters, not a bytes"),
        ("a\udfff", 500, "name='a\\udfff': holds a lone surrogate, which is not text; remove it"),
    ],
    ids=["number", "empty", "long", "very long", "bytes", "surrogate"],
)
def test_what_is_no_text_is_told_with_what_is_wanted(value: Any, longest: int, message: str) -> None:
    with pytest.raises(InputError) as refused:
        given.text(value, "name", longest=longest)
    assert str(refused.value) == message


@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), (math.nan, "nan"), (Xylophone(), "<a Xylophone>")])
def test_what_is_no_time_is_told_with_what_is_wanted(value: Any, shown: str) -> None:
    with pytest.raises(InputError) as refused:
        given.seconds(value, "timeout")
    assert str(refused.value) == f"timeout={shown}: must be a duration, 0 or more, for example 90, 90s, 10m, 2h or 1d"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 59}…"),
        (Sly("order"), "'order'"),
        (["x"], "['x']"),
        (Xylophone(), "<a Xylophone>"),
        (10**5000, "<an int>"),
    ],
    ids=["just whole", "just cut", "own repr", "list", "no repr", "many digits"],
)
def test_a_value_is_shown_whole_up_to_60_characters(value: Any, shown: str) -> None:
    assert given.shown(value) == shown
