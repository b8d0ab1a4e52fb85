"""Arguments and values: Python values to and from JSON texts, with promises and failures inside.

Only what JSON carries unchanged is taken: None, bool, int, finite float, str, list, dict with str keys (a
tuple becomes a list). Anything else is a `NotEncodable` that names the place, before anything is stored: a
value that comes back different from how it went in is found out weeks later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

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


@dataclass(frozen=True, slots=True)
class Encoded:
    """A JSON text and the ids of the tasks whose promises it holds, each once, in order."""

    text: str
    promises: tuple[str, ...]


def encode(value: Any, what: str) -> Encoded:
    """`value` as JSON. `what` names it in errors, as in 'argument 2 of add'.

    Raises NotEncodable with the path to what can't be encoded, TooLarge over 16 MB.
    """
    promises: dict[str, None] = {}
    plain = _plain(value, what, promises, depth=0)
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        place = _surrogate(plain, what)
        raise NotEncodable(f"{place}: holds a lone surrogate, which is not text; remove it") from None
    if size > MAX_BYTES:
        raise TooLarge(
            f"{what}: {size:,} bytes as JSON, over MongoDB's limit of 16 MB per record; "
            "store the data elsewhere and pass its address"
        )
    return Encoded(text, tuple(promises))


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
    return len(f'{{"{PROMISE_KEY}":"{task_id}"}}')


def _failure(fields: Any) -> Failure | None:
    """None for what was stored under this key before it was reserved."""
    names = Failure.__dataclass_fields__.keys()
    return Failure(**fields) if isinstance(fields, dict) and fields.keys() == names else None


def dump(value: Any) -> str:
    """The JSON text of a value that was decoded: of JSON and failures. Raises RecursionError if it is too deep."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain_failure)


def plain_failure(value: Any) -> dict[str, Any]:
    """A failure as JSON has it, for `json.dumps(..., default=...)`."""
    if isinstance(value, Failure):
        return {FAILURE_KEY: asdict(value)}
    raise TypeError(f"a {type(value).__qualname__} is not JSON")


def _plain(value: Any, path: str, promises: dict[str, None], depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        # The bits first: they are at hand, the power is not.
        if value.bit_length() > 3 * MAX_DIGITS and abs(value) >= 10**MAX_DIGITS:
            raise NotEncodable(f"{path}: a whole number of over {MAX_DIGITS:,} digits; use a string of hex digits")
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise NotEncodable(f"{path}: {value} is not a JSON number; use None or a string")
    if depth > 100:
        raise NotEncodable(f"{path[:200]}…: nested over 100 levels deep, or contains itself")
    if kind in (list, tuple):
        return [_plain(item, f"{path}[{i}]", promises, depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        return {_key(k, path): _plain(v, f"{path}[{k!r}]", promises, depth + 1) for k, v in value.items()}
    if kind is Promise:
        if type(value.task_id) is not str:
            raise NotEncodable(f"{path}: a promise is what `schedule` gave, not one of {shown(value.task_id)}")
        promises[value.task_id] = None
        return {PROMISE_KEY: value.task_id}
    if kind is Failure:
        return _plain_failure(value, path)
    # Subclasses (IntEnum, OrderedDict, numpy's float64) would come back as another type.
    raise NotEncodable(
        f"{path}: a {kind.__module__}.{kind.__qualname__} is not JSON; pass None, bool, int, float, str, "
        "list, dict or a promise (a date as text, a set as a list, an object as a dict)"
    )


def _plain_failure(value: Failure, path: str) -> dict[str, Any]:
    for name, text in asdict(value).items():
        if type(text) is not str:
            raise NotEncodable(f"{path}.{name}: a failure's {name} is a str, not {shown(text)}")
    return plain_failure(value)


def _key(key: Any, path: str) -> str:
    if type(key) is not str:
        raise NotEncodable(f"{path}: the key {shown(key)} is not a str, and JSON would turn it into one")
    if key in _RESERVED:
        raise NotEncodable(f"{path}: the key {key!r} is reserved for {_RESERVED[key]}; rename it")
    return key


def _surrogate(plain: Any, path: str) -> str:
    """Where in a plain value the text is that UTF-8 can't carry."""
    inside: list[tuple[Any, str]] = [(plain, path)]  # grows while it is walked
    for value, place in inside:
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            return place
        if isinstance(value, list):
            inside += [(item, f"{place}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, dict):
            inside += [(key, place) for key in value] + [(item, f"{place}[{key!r}]") for key, item in value.items()]
    return path
