"""Converts arguments and values to and from JSON texts. Values may contain promises and failures.

Only values that JSON preserves are accepted: None, bool, int, finite float, str, list, and dict with str keys (a tuple
becomes a list). Any other value raises `NotEncodable`, which names the place, before anything is stored. Otherwise a
user would find out weeks later that a value had changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from recovery.errors import InputError, NotEncodable, TooLarge
from recovery.records.failure import Failure
from recovery.records.given import shown

PROMISE_KEY, FAILURE_KEY = "$promise", "$failure"
_RESERVED = {PROMISE_KEY: "promises", FAILURE_KEY: "failures"}
MAX_DIGITS = 4300
"""Maximum number of digits of an int: Python's default limit for reading and writing ints."""
MAX_BYTES = 16 * 1024 * 1024 - 64 * 1024
"""Maximum size of a value in bytes: MongoDB's 16 MB per record, minus space for the record's other fields."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The future value of a scheduled task. Pass it to another task, or return it."""

    task_id: str
    actor: str = ""

    def _no_value(self, *_: object) -> NoReturn:
        raise InputError(
            f"the promise of {self.actor or self.task_id} has no value yet: pass it to a task, which gets the value"
        )

    # Without these, a condition or a text would silently use the promise as if it were a value.
    __bool__ = __iter__ = __getitem__ = __len__ = __str__ = __format__ = _no_value
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __abs__ = __neg__ = __round__ = _no_value
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __divmod__ = _no_value
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _no_value
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _no_value

    if not TYPE_CHECKING:  # type checkers report the attribute themselves

        def __getattr__(self, name: str) -> NoReturn:
            # Python and libraries look up names with an underscore on any object, for example to copy it.
            if name.startswith("_") or name in self.__slots__:
                raise AttributeError(name)
            self._no_value()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A JSON text, and the ids of the tasks whose promises it contains, each once, in order of appearance."""

    text: str
    promises: tuple[str, ...]


def encode(value: Any, what: str) -> Encoded:
    """Return the JSON text of a value and the promises in it.

    An object that the value contains several times counts each time, as JSON would contain it. The size is checked
    before the text is made, because nested shared objects may need more than the available memory.

    Args:
        value: The value to encode.
        what: Name of the value in errors, for example `argument 2 of add`.

    Raises:
        NotEncodable: A part of the value cannot be encoded. The message has the path to this part.
        TooLarge: The text would be over MongoDB's limit of 16 MB per record.
    """
    _Check(what).check(value)
    promises: dict[str, None] = {}

    def plain(part: Any) -> Any:
        if type(part) is Promise:
            promises[part.task_id] = None
            return {PROMISE_KEY: part.task_id}
        return plain_failure(part)

    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False, default=plain
    )
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        place = _surrogate(value, what)
        raise NotEncodable(f"{place}: holds a lone surrogate, which is not text; remove it") from None
    if size > MAX_BYTES:
        raise _too_large(what, f"{size:,} bytes as JSON, over")
    return Encoded(text, tuple(promises))


def _too_large(what: str, size: str) -> TooLarge:
    return TooLarge(
        f"{what}: {size} MongoDB's limit of 16 MB per record; store the data elsewhere and pass its address"
    )


def decode(text: str, resolve: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a JSON text.

    Args:
        text: A text that `encode` made.
        resolve: Returns the value that replaces the promise of a task id. None: promises stay as JSON objects.
    """
    if FAILURE_KEY not in text and (resolve is None or PROMISE_KEY not in text):
        return json.loads(text)

    def hook(parsed: dict[str, Any]) -> Any:
        if len(parsed) == 1:
            if resolve is not None and PROMISE_KEY in parsed:
                return resolve(parsed[PROMISE_KEY])
            if FAILURE_KEY in parsed:
                return _failure(parsed[FAILURE_KEY]) or parsed
        return parsed

    return json.loads(text, object_hook=hook)


def promise_bytes(task_id: str) -> int:
    """Return the size of a task's promise in a JSON text, in bytes. Replacing the promise by its value frees them."""
    return len(promise_text(task_id))


def promise_text(task_id: str) -> str:
    """Return the JSON text of a task's promise."""
    return f'{{"{PROMISE_KEY}":"{task_id}"}}'


def _failure(fields: Any) -> Failure | None:
    """Return the failure with these fields; None for a user's value from before the key was reserved."""
    names = Failure.__dataclass_fields__.keys()
    return Failure(**fields) if isinstance(fields, dict) and fields.keys() == names else None


def is_same(text: str, other: str) -> bool:
    """Return whether two JSON texts have equal values. The order of keys does not matter, and numbers are compared by
    value. An invalid text equals only itself."""
    try:
        return text == other or _is_equal(json.loads(text), json.loads(other))
    except (ValueError, RecursionError):
        return False


def _is_equal(value: Any, other: Any) -> bool:
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_is_equal(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_equal, value, other))
    # In Python, True == 1 and False == 0.
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def dump(value: Any) -> str:
    """Return the JSON text of a decoded value, which may contain failures.

    Raises:
        RecursionError: The value is nested too deeply.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_failure)


def plain_failure(value: Any) -> dict[str, Any]:
    """Return a failure as a JSON object, for `json.dumps(..., default=...)`. Raises TypeError for other values."""
    if isinstance(value, Failure):
        return {FAILURE_KEY: asdict(value)}
    raise TypeError(f"a {type(value).__qualname__} is not JSON")


class _Check:
    """A check that JSON preserves all parts of a value and that the value is not too large.

    The check walks through the value as `encode` will write it, and stops as soon as the size is too large. It builds
    no text, because a few sub-objects that are shared many times may need more than the available memory.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._place: list[Any] = []
        """Indices and keys that lead to the current part."""
        self._left = MAX_BYTES

    def check(self, value: Any) -> None:
        value_type = type(value)
        if value_type is str:
            self._take(len(value) + 2)
        elif value is None or value_type is bool:
            self._take(4)
        elif value_type is int:
            # Compare the bits first, because computing the power takes longer.
            if value.bit_length() > 3 * MAX_DIGITS and abs(value) >= 10**MAX_DIGITS:
                raise self._refused(f"a whole number of over {MAX_DIGITS:,} digits; use a string of hex digits")
            self._take(max(1, value.bit_length() * 3 // 10))
        elif value_type is float:
            if not math.isfinite(value):
                raise self._refused(f"{value} is not a JSON number; use None or a string")
            self._take(3)
        elif len(self._place) > 100:
            place = f"{self._what}{self._path()}"
            raise NotEncodable(f"{place[:200]}…: nested over 100 levels deep, or contains itself")
        elif value_type in (list, tuple):
            self._take(2)
            self._check_items(enumerate(value))
        elif value_type is dict:
            self._take(2)
            self._check_items(self._with_keys(value))
        else:
            self._check_other_type(value)

    def _check_other_type(self, value: Any) -> None:
        """Check a promise or a failure. Refuse every other type."""
        value_type = type(value)
        if value_type is Promise:
            if type(value.task_id) is not str:
                raise self._refused(f"a promise is what `schedule` gave, not one of {shown(value.task_id)}")
            self._take(promise_bytes(value.task_id))
        elif value_type is Failure:
            self._check_failure(value)
        else:
            # Subclasses (IntEnum, OrderedDict, numpy's float64) would come back as another type.
            raise self._refused(
                f"a {value_type.__module__}.{value_type.__qualname__} is not JSON; pass None, bool, int, float, str, "
                "list, dict or a promise (a date as text, a set as a list, an object as a dict)"
            )

    def _take(self, size: int) -> None:
        """Subtract the minimum size of a part from the remaining bytes. Raise TooLarge if none remain."""
        self._left -= size
        if self._left < 0:
            raise _too_large(self._what, f"at least {MAX_BYTES - self._left:,} bytes as JSON, over")

    def _check_items(self, items: Iterable[tuple[Any, Any]]) -> None:
        place = self._place
        place.append(None)
        self._left += 1  # the first item has no comma before it
        for place[-1], item in items:
            self._left -= 1
            self.check(item)
        place.pop()

    def _with_keys(self, value: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            if type(key) is not str:
                raise self._refused_key(f"the key {shown(key)} is not a str, and JSON would turn it into one")
            if key in _RESERVED:
                raise self._refused_key(f"the key {key!r} is reserved for {_RESERVED[key]}; rename it")
            self._take(len(key) + 3)
            yield key, item

    def _check_failure(self, value: Failure) -> None:
        for name, text in asdict(value).items():
            if type(text) is not str:
                raise self._refused(f"a failure's {name} is a str, not {shown(text)}", f".{name}")
            self._take(len(text))

    def _refused(self, why: str, part: str = "") -> NotEncodable:
        return NotEncodable(f"{self._what}{self._path()}{part}: {why}")

    def _refused_key(self, why: str) -> NotEncodable:
        self._place.pop()  # remove the previous key, because the path names the dict
        return self._refused(why)

    def _path(self) -> str:
        return "".join(f"[{step!r}]" for step in self._place)


def _surrogate(value: Any, path: str) -> str:
    """Return the path to the first text with a lone surrogate, which UTF-8 cannot encode."""
    return next(_surrogates(value, path), path)


def _surrogates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _surrogates(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _surrogates(key, path)
            yield from _surrogates(item, f"{path}[{key!r}]")
    elif isinstance(value, Failure):
        for name, text in asdict(value).items():
            yield from _surrogates(text, f"{path}.{name}")
    elif isinstance(value, Promise):
        yield from _surrogates(value.task_id, path)
