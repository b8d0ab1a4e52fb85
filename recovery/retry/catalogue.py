"""Catalogues: which errors mean what. An entry says by which signs it knows an error, its code, and its reason.

No driver is imported for it: a class is known by its name, with its superclasses; what an error carries (a server's
code, labels, an HTTP status) is read from where the libraries keep it. What no catalogue knows is GENERIC_ERROR, which
is not retriable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.codes import GENERIC_ERROR, OUR_OWN, ErrorClass, ErrorCode
from recovery.retry.error_map import NOT_INDICATED, RETRY_INDICATED, ErrorMap
from recovery.retry.reasons import UNKNOWN, Reason

WRITE_CONCERN_ERRORS = "writeConcernErrors"
"""A label of ours: what MongoDB wrote was not confirmed."""
_SEQUENCES = (set, frozenset, list, tuple)
MAX_CAUSES = 20
"""Of a chain of causes so many are looked at."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What can be seen of an error."""

    types: tuple[str, ...] = ()
    """Full names of its class and of its superclasses, the nearest first."""
    text: str = ""
    number: int | None = None
    """A server's own code, or the operating system's errno."""
    labels: frozenset[str] = frozenset()
    status: int | None = None
    """Of an HTTP answer."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of error. All signs that are given have to be there; of several numbers, labels or statuses one."""

    code: ErrorCode
    reason: Reason
    types: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    labels: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    pattern: str | None = None
    """A regular expression that is searched in the text."""

    def matches(self, signs: Signs) -> bool:
        return (
            (not self.types or not self.types.isdisjoint(signs.types))
            and (not self.numbers or signs.number in self.numbers)
            and (not self.labels or not self.labels.isdisjoint(signs.labels))
            and (not self.statuses or signs.status in self.statuses)
            and (self.pattern is None or re.search(self.pattern, signs.text) is not None)
        )


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The errors of one kind of server or library. The first entry that matches counts. Raises InputError for entries
    that contradict each other."""

    name: str
    entries: tuple[Entry, ...]
    error_map: ErrorMap | None = None
    """What the server itself says of those of its errors that no entry knows."""

    def __post_init__(self) -> None:
        named: dict[int, ErrorCode] = {}
        for entry in self.entries:
            known = named.setdefault(entry.code.number, entry.code)
            if known != entry.code:
                raise InputError(
                    f"catalogue {self.name}: {known.name} and {entry.code.name} have the code {known.number}; give one "
                    "of them another"
                )
            if not (entry.types or entry.numbers or entry.labels or entry.statuses or entry.pattern):
                raise InputError(
                    f"catalogue {self.name}: {entry.code.name} says by no sign how it is known; give a type, a number, "
                    "a label, a status or a pattern"
                )

    def codes(self) -> Iterator[ErrorCode]:
        """All codes, each once."""
        mapped = () if self.error_map is None else (RETRY_INDICATED, NOT_INDICATED)
        yield from dict.fromkeys([*(entry.code for entry in self.entries), *mapped])

    def find(self, signs: Signs) -> tuple[Classified, frozenset[str]] | None:
        """What these signs are, and the types by which it is known. The error map is asked for what is in no entry."""
        for entry in self.entries:
            if entry.matches(signs):
                return Classified(entry.code, entry.reason, self.name, signs.retry_after), entry.types
        mapped = self.error_map
        if mapped is None or signs.number is None or mapped.types.isdisjoint(signs.types):
            return None
        return Classified(*mapped.says(signs.number), self.name), mapped.types


@dataclass(frozen=True, slots=True)
class Classified:
    """What an error is: its code and reason, and by which catalogue and error of its chain that is known."""

    code: ErrorCode
    reason: Reason
    catalogue: str | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait."""

    @property
    def is_retriable(self) -> bool:
        """Whether waiting can help, whatever the request is."""
        return self.reason.always_retry or self.code.error_class is ErrorClass.RETRIABLE


UNCLASSIFIED = Classified(GENERIC_ERROR, UNKNOWN)


def check_together(catalogues: Sequence[Catalogue]) -> None:
    """Raise InputError for catalogues that overlap: the same name, or one code for two things."""
    names: set[str] = set()
    known: dict[int, tuple[str, ErrorCode]] = {code.number: ("recovery", code) for code in OUR_OWN}
    for catalogue in catalogues:
        if catalogue.name in names:
            raise InputError(f"two catalogues are named {given.shown(catalogue.name)}; give one of them another name")
        names.add(catalogue.name)
        for code in catalogue.codes():
            other, held = known.setdefault(code.number, (catalogue.name, code))
            if held != code:
                raise InputError(
                    f"catalogues {other} and {catalogue.name} overlap: {code.number} is {held.name} in the one and "
                    f"{code.name} in the other"
                )


def classify(error: BaseException, catalogues: Sequence[Catalogue]) -> Classified:
    """What an error is, by itself or by the nearest of its causes that a catalogue knows."""
    for one in _chain(error):
        if (found := find(signs_of(one), catalogues)) is not None:
            return found
    return UNCLASSIFIED


def find(signs: Signs, catalogues: Sequence[Catalogue]) -> Classified | None:
    """What these signs are. Of two catalogues that know them the one counts that knows the nearer class; the later of
    them, where both know the same: users' come last."""
    best: tuple[int, int] | None = None
    found: Classified | None = None
    for place, catalogue in enumerate(catalogues):
        if (known := catalogue.find(signs)) is None:
            continue
        classified, types = known
        distance = min((signs.types.index(one) for one in types if one in signs.types), default=len(signs.types))
        if best is None or (distance, -place) < best:
            best, found = (distance, -place), classified
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, and so on."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < MAX_CAUSES:
        yield one
        seen.add(id(one))
        one = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__


def signs_of(error: BaseException) -> Signs:
    """What can be seen of an error. Does not raise, whatever somebody's class does when it is asked."""
    response = _get(error, "response")
    status = next(
        (
            value
            for value in (_get(response, "status_code"), _get(response, "status"), _get(error, "status"))
            if _is_status(value)
        ),
        None,
    )
    types = tuple(f"{one.__module__}.{one.__qualname__}" for one in type(error).__mro__[:-1])
    code = _get(error, "code")
    failed, answered, unconfirmed = _of_details(_get(error, "details"))
    number = next((one for one in (failed, _get(error, "errno"), code, answered) if type(one) is int), None)
    labels = _get(error, "_error_labels")
    said = {one for one in labels if isinstance(one, str)} if isinstance(labels, _SEQUENCES) else set()
    if unconfirmed:
        said.add(WRITE_CONCERN_ERRORS)
    asked = (_retry_after(_get(thing, "headers")) for thing in (response, error))
    retry_after = next((seconds for seconds in asked if seconds is not None), None)
    return Signs(types, _text(error), number, frozenset(said), status, retry_after)


def _of_details(details: Any) -> tuple[Any, Any, bool]:
    """Of what MongoDB answered: the code of the first write of a bulk that failed; the code of the answer, which
    pymongo's NotPrimaryError has nowhere else; and whether what was written was not confirmed."""
    if not isinstance(details, dict):
        return None, None, False
    if "writeErrors" in details:
        failures = details["writeErrors"] if isinstance(details["writeErrors"], list | tuple) else ()
        failed = [one.get("code") for one in failures if isinstance(one, dict)]
        return next(iter(failed), None), None, bool(details.get("writeConcernErrors"))
    unconfirmed = details.get("writeConcernError")
    if "code" not in details and isinstance(unconfirmed, dict):
        return None, unconfirmed.get("code"), True
    return None, details.get("code"), False


def _is_status(value: Any) -> bool:
    return type(value) is int and 100 <= value < 600


def _get(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except BaseException:  # a property of somebody's, which may as well call sys.exit()
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # its own __str__
        return ""


def _retry_after(headers: Any) -> float | None:
    """Seconds; the other form of the header, a date, is by a clock that need not be ours."""
    try:
        value = headers.get("Retry-After") or headers.get("retry-after")
        seconds = float(value)
    except Exception:
        return None
    return seconds if 0 <= seconds < 86_400 * 365 else None


@dataclass(slots=True)
class Catalogues:
    """Those that are in use: the shipped ones, then users' in the order in which they came."""

    all: list[Catalogue] = field(default_factory=list)

    def add(self, catalogue: Catalogue) -> None:
        """Add one. Raises InputError where it overlaps with another."""
        check_together([*self.all, catalogue])
        self.all.append(catalogue)
