"""Arguments and values: Python values to and from JSON texts, with promises and failures inside.

Only what JSON carries unchanged is taken: None, bool, int, finite float, str, list, dict with str keys (a
tuple becomes a list). Anything else is a `NotEncodable` that names the place, before anything is stored: a
value that comes back different from how it went in is found out weeks later.
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
"""Of a whole number: Python's default limit, past which it neither writes nor reads one."""
MAX_BYTES = 16 * 1024 * 1024 - 64 * 1024
"""What a record may hold: MongoDB's 16 MB less what its other fields need."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The value that a scheduled task will have. Pass it to another task, or return it."""

    task_id: str
    actor: str = ""

    def _no_value(self, *_: object) -> NoReturn:
        raise InputError(
            f"the promise of {self.actor or self.task_id} has no value yet: pass it to a task, which gets the value"
        )

    # Else a promise in a condition or a text would pass silently for a value.
    __bool__ = __iter__ = __getitem__ = __len__ = __str__ = __format__ = _no_value
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __abs__ = __neg__ = __round__ = _no_value
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __divmod__ = _no_value
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _no_value
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _no_value

    if not TYPE_CHECKING:  # type checkers report the attribute themselves

        def __getattr__(self, name: str) -> NoReturn:
            # Python and libraries ask any object for names with an underscore, for example to copy it.
            if name.startswith("_") or name in self.__slots__:
                raise AttributeError(name)
            self._no_value()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A JSON text and the ids of the tasks whose promises it holds, each once, in order."""

    text: str
    promises: tuple[str, ...]


def encode(value: Any, what: str) -> Encoded:
    """`value` as JSON. `what` names it in errors, as in 'argument 2 of add'.

    Raises NotEncodable with the path to what can't be encoded, TooLarge over 16 MB. What a value holds many times, as
    `[x, x]` does whose `x` is such a list again, counts as often as it would be written; it is not written before.
    """
    _Check(what).check(value)
    promises: dict[str, None] = {}

    def plain(found: Any) -> Any:
        if type(found) is Promise:
            promises[found.task_id] = None
            return {PROMISE_KEY: found.task_id}
        return plain_failure(found)

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
    """The value of a JSON text. `resolve(task id)` gives the value in a promise's place."""
    if FAILURE_KEY not in text and (resolve is None or PROMISE_KEY not in text):
        return json.loads(text)

    def hook(found: dict[str, Any]) -> Any:
        if len(found) == 1:
            if resolve is not None and PROMISE_KEY in found:
                return resolve(found[PROMISE_KEY])
            if FAILURE_KEY in found:
                return _failure(found[FAILURE_KEY]) or found
        return found

    return json.loads(text, object_hook=hook)


def promise_bytes(task_id: str) -> int:
    """What the promise of a task takes in a value's text: that much goes where its value comes."""
    return len(promise_text(task_id))


def promise_text(task_id: str) -> str:
    """The promise of a task as it stands in a value's text."""
    return f'{{"{PROMISE_KEY}":"{task_id}"}}'


def _failure(fields: Any) -> Failure | None:
    """None for what was stored under this key before it was reserved."""
    names = Failure.__dataclass_fields__.keys()
    return Failure(**fields) if isinstance(fields, dict) and fields.keys() == names else None


def is_same(text: str, other: str) -> bool:
    """Whether two JSON texts say the same: keys in whatever order, numbers by their value. A text that can't be read
    says what no other does."""
    try:
        return text == other or _is_equal(json.loads(text), json.loads(other))
    except (ValueError, RecursionError):
        return False


def _is_equal(value: Any, other: Any) -> bool:
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_is_equal(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_equal, value, other))
    # To Python a truth value is a number as well.
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def dump(value: Any) -> str:
    """The JSON text of a value that was decoded: of JSON and failures. Raises RecursionError if it is too deep."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_failure)


def plain_failure(value: Any) -> dict[str, Any]:
    """A failure as JSON has it, for `json.dumps(..., default=...)`."""
    if isinstance(value, Failure):
        return {FAILURE_KEY: asdict(value)}
    raise TypeError(f"a {type(value).__qualname__} is not JSON")


class _Check:
    """A walk through a value as `encode` writes it: that JSON carries all of it, and that it is not too large.

    It ends as soon as what it has passed comes to too much, and makes nothing: a few sub-objects that are shared again
    and again may stand for more than any memory holds.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._place: list[Any] = []
        """Indices and keys on the way to what is looked at."""
        self._left = MAX_BYTES

    def check(self, value: Any) -> None:
        kind = type(value)
        if kind is str:
            self._take(len(value) + 2)
        elif value is None or kind is bool:
            self._take(4)
        elif kind is int:
            # The bits first: they are at hand, the power is not.
            if value.bit_length() > 3 * MAX_DIGITS and abs(value) >= 10**MAX_DIGITS:
                raise self._refused(f"a whole number of over {MAX_DIGITS:,} digits; use a string of hex digits")
            self._take(max(1, value.bit_length() * 3 // 10))
        elif kind is float:
            if not math.isfinite(value):
                raise self._refused(f"{value} is not a JSON number; use None or a string")
            self._take(3)
        elif len(self._place) > 100:
            place = f"{self._what}{self._path()}"
            raise NotEncodable(f"{place[:200]}…: nested over 100 levels deep, or contains itself")
        elif kind in (list, tuple):
            self._take(2)
            self._check_items(enumerate(value))
        elif kind is dict:
            self._take(2)
            self._check_items(self._with_keys(value))
        else:
            self._check_other_type(value)

    def _check_other_type(self, value: Any) -> None:
        """Check a promise or a failure. Refuse every other type."""
        kind = type(value)
        if kind is Promise:
            if type(value.task_id) is not str:
                raise self._refused(f"a promise is what `schedule` gave, not one of {shown(value.task_id)}")
            self._take(promise_bytes(value.task_id))
        elif kind is Failure:
            self._check_failure(value)
        else:
            # Subclasses (IntEnum, OrderedDict, numpy's float64) would come back as another type.
            raise self._refused(
                f"a {kind.__module__}.{kind.__qualname__} is not JSON; pass None, bool, int, float, str, "
                "list, dict or a promise (a date as text, a set as a list, an object as a dict)"
            )

    def _take(self, size: int) -> None:
        """Count what a part takes at the least: of a text its characters, of what is around it the brackets."""
        self._left -= size
        if self._left < 0:
            raise _too_large(self._what, f"at least {MAX_BYTES - self._left:,} bytes as JSON, over")

    def _check_items(self, items: Iterable[tuple[Any, Any]]) -> None:
        place = self._place
        place.append(None)
        self._left += 1  # the first one has no comma before it
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
        self._place.pop()  # the key before this one, if there was one
        return self._refused(why)

    def _path(self) -> str:
        return "".join(f"[{step!r}]" for step in self._place)


def _surrogate(value: Any, path: str) -> str:
    """Where in a value the text is that UTF-8 can't carry."""
    return next(_surrogates(value, path), path)


def _surrogates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            yield path
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _surrogates(item, f"{path}[{place}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _surrogates(key, path)
            yield from _surrogates(item, f"{path}[{key!r}]")
    elif isinstance(value, Failure):
        for name, text in asdict(value).items():
            yield from _surrogates(text, f"{path}.{name}")
    elif isinstance(value, Promise):
        yield from _surrogates(value.task_id, path)
