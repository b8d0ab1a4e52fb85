"""Catalogues: which errors mean what. An entry says by which signs it knows an error, its code, and its reason.

An error is judged by itself, then by what it was raised from. An error raised while another one was being handled says
nothing of that other one: a bug in an `except` block is a bug. A group is retriable if all of its errors are. What no
catalogue knows is GENERIC_ERROR, which is not retriable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from recovery.errors import InputError
from recovery.records import given
from recovery.retry.codes import GENERIC_ERROR, NOT_INDICATED, OUR_OWN, RETRY_INDICATED, ErrorClass, ErrorCode, ErrorMap
from recovery.retry.reasons import SERVICE_RESPONSE_CODE_INDICATED, UNKNOWN, Reason
from recovery.retry.signs import Signs, signs_of

MAX_CAUSES = 20
"""Errors of one chain of causes that are examined."""
MAX_MEMBERS = 100
"""Errors of one group that are examined, with those of the groups in it."""
MAX_GROUPS = 2
"""Groups behind each other that are examined: a group may be the cause of an error of another group, or of its own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of error. All signs that are given have to be there; of several numbers, labels or statuses one.

    Raises InputError for a retriable code with the reason UNKNOWN, because what is unknown is never retried (RFC 49,
    'RetryReason').
    """

    code: ErrorCode
    reason: Reason
    types: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    labels: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    pattern: str | None = None
    """A regular expression that is searched in the text."""
    service: str | None = None
    """The service of a server that has several, as in `Signs.service`."""
    applies: Callable[[Signs], bool] | None = None
    """A further condition."""

    def __post_init__(self) -> None:
        if self.reason is UNKNOWN and self.code.error_class is ErrorClass.RETRIABLE:
            raise InputError(
                f"{self.code.name}: its code {self.code.number} is retriable, and its reason UNKNOWN, which is never "
                "retried; give a reason, such as SERVICE_NOT_AVAILABLE or TIMEOUT_IN_FLIGHT, or a code from 40000 on"
            )

    def matches(self, signs: Signs) -> bool:
        return (
            (not self.types or not self.types.isdisjoint(signs.types))
            and (not self.numbers or signs.number in self.numbers)
            and (not self.labels or not self.labels.isdisjoint(signs.labels))
            and (not self.statuses or signs.status in self.statuses)
            and (self.service is None or self.service == signs.service)
            and (self.pattern is None or re.search(self.pattern, signs.text) is not None)
            and (self.applies is None or self.applies(signs))
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
                found = Classified(entry.code, entry.reason, self.name, signs.retry_after, signs.is_idempotent)
                return found, entry.types
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
    is_idempotent: bool = False
    """Whether the error shows that the failed request could not change anything, whatever its task does."""
    is_known_to_caller: bool = False
    """Whether the caller of this task knows that it is transient."""

    @property
    def is_retriable(self) -> bool:
        """Whether waiting can help, whatever the request is. Never for the reason UNKNOWN."""
        if self.is_known_to_caller:
            return True
        if self.reason is UNKNOWN:
            return False
        return self.reason.always_retry or self.code.error_class is ErrorClass.RETRIABLE


def known_to_caller(found: Classified) -> Classified:
    """Return what an error is that a caller knows to be transient (RFC 49, 'Retryable with application context'): an
    answer that changed nothing."""
    reason = SERVICE_RESPONSE_CODE_INDICATED if found.reason is UNKNOWN else found.reason
    return replace(found, reason=reason, is_known_to_caller=True)


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
    """Return what an error is, by itself or by the nearest of its causes that a catalogue knows."""
    return _classify(error, catalogues, 0)


def _classify(error: BaseException, catalogues: Sequence[Catalogue], groups: int) -> Classified:
    for one in _chain(error):
        if (found := find(signs_of(one), catalogues)) is not None:
            return found
        if isinstance(one, BaseExceptionGroup):
            return _of_group(one, catalogues, groups + 1) if groups < MAX_GROUPS else UNCLASSIFIED
    return UNCLASSIFIED


def _of_group(group: BaseExceptionGroup[BaseException], catalogues: Sequence[Catalogue], groups: int) -> Classified:
    """Return what the most serious error of a group is: one that is not retriable, else one that only an idempotent
    task may be retried after. The longest time that a server asks to wait holds for all."""
    members = [_classify(one, catalogues, groups) for one in _members(group)]
    worst = min(members, key=lambda one: (one.is_retriable, one.reason.allows_non_idempotent_retry))
    longest = max((one.retry_after for one in members if one.retry_after is not None), default=None)
    return replace(worst, retry_after=longest)


def _members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors of a group and of the groups in it, without the groups."""
    found: list[BaseException] = []
    remaining: list[BaseException] = [group]
    while remaining and len(found) < MAX_MEMBERS:
        one = remaining.pop()
        if isinstance(one, BaseExceptionGroup):
            remaining.extend(reversed(one.exceptions))
        else:
            found.append(one)
    return found


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
    """Yield an error, what it was raised from, and so on."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < MAX_CAUSES:
        yield one
        seen.add(id(one))
        one = one.__cause__ or _carried(one)


def _carried(error: BaseException) -> BaseException | None:
    """Return the error that another one was made of, as in `URLError(error)`. urllib gives it no other cause."""
    return next(
        (one for one in BaseException.__dict__["args"].__get__(error)[:1] if isinstance(one, BaseException)), None
    )


@dataclass(slots=True)
class Catalogues:
    """Those that are in use: the shipped ones, then users' in the order in which they came."""

    all: list[Catalogue] = field(default_factory=list)

    def add(self, catalogue: Catalogue) -> None:
        """Add one. Raises InputError where it overlaps with another."""
        check_together([*self.all, catalogue])
        self.all.append(catalogue)
