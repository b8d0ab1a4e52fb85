"""Catalogues: which errors have which meaning. An entry has the signs of an error, its code, and its reason.

An error is classified by itself, then by the error that it was raised from. The error that was being handled when
another one was raised does not count: a bug in an `except` block is a bug. A group is retriable if all of its errors
are. An error that no catalogue knows is GENERIC_ERROR, which is not retriable.
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
"""Maximum number of errors in a chain of causes that are examined."""
MAX_MEMBERS = 100
"""Maximum number of errors in a group, with its nested groups, that are examined."""
MAX_GROUPS = 2
"""Maximum number of groups in a chain that are examined. A group may be the cause of an error in another group, or in
itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of error. All given kinds of signs must match; of several numbers, labels or statuses, one must match.

    Raises:
        InputError: The code is retriable but the reason is UNKNOWN, which is never retried (RFC 49, 'RetryReason').
    """

    code: ErrorCode
    reason: Reason
    types: frozenset[str] = frozenset()
    numbers: frozenset[int] = frozenset()
    labels: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    pattern: str | None = None
    """A regular expression that is searched for in the text."""
    service: str | None = None
    """The service that answered, if the server has several; as in `Signs.service`."""
    applies: Callable[[Signs], bool] | None = None
    """A further condition on the signs."""

    def __post_init__(self) -> None:
        if self.reason is UNKNOWN and self.code.error_class is ErrorClass.RETRIABLE:
            raise InputError(
                f"{self.code.name}: its code {self.code.number} is retriable, but its reason is UNKNOWN, which is "
                "never retried; give a reason, such as SERVICE_NOT_AVAILABLE or TIMEOUT_IN_FLIGHT, or a code from "
                "40000 on"
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
    """The errors of one kind of server or library. The first entry that matches an error counts.

    Raises:
        InputError: Two entries contradict each other, or an entry has no sign.
    """

    name: str
    entries: tuple[Entry, ...]
    error_map: ErrorMap | None = None
    """The server's own classification of errors that no entry knows."""

    def __post_init__(self) -> None:
        codes: dict[int, ErrorCode] = {}
        for entry in self.entries:
            code = codes.setdefault(entry.code.number, entry.code)
            if code != entry.code:
                raise InputError(
                    f"catalogue {self.name}: {code.name} and {entry.code.name} have the code {code.number}; give one "
                    "of them another"
                )
            if not (entry.types or entry.numbers or entry.labels or entry.statuses or entry.pattern):
                raise InputError(
                    f"catalogue {self.name}: {entry.code.name} has no sign by which it is recognized; give a type, a "
                    "number, a label, a status or a pattern"
                )

    def codes(self) -> Iterator[ErrorCode]:
        """Yield all codes, each once."""
        map_codes = () if self.error_map is None else (RETRY_INDICATED, NOT_INDICATED)
        yield from dict.fromkeys([*(entry.code for entry in self.entries), *map_codes])

    def find(self, signs: Signs) -> tuple[Classified, frozenset[str]] | None:
        """Classify an error by its signs: by the entries, then by the error map.

        Returns:
            The classified error, and the types by which it was recognized; None if the error is unknown.
        """
        for entry in self.entries:
            if entry.matches(signs):
                classified = Classified(entry.code, entry.reason, self.name, signs.retry_after, signs.is_idempotent)
                return classified, entry.types
        error_map = self.error_map
        if error_map is None or signs.number is None or error_map.types.isdisjoint(signs.types):
            return None
        return Classified(*error_map.says(signs.number), self.name), error_map.types


@dataclass(frozen=True, slots=True)
class Classified:
    """A classified error: its code, its reason, and which catalogue knows it."""

    code: ErrorCode
    reason: Reason
    catalogue: str | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait before a retry."""
    is_idempotent: bool = False
    """Whether the error shows that the failed request can't have changed anything, even if its task is not idempotent.
    """
    is_known_to_caller: bool = False
    """Whether the caller of this task knows that the error is transient."""

    @property
    def is_retriable(self) -> bool:
        """Whether waiting can help, whatever the request is. Never True for the reason UNKNOWN, unless the caller knows
        better."""
        if self.is_known_to_caller:
            return True
        if self.reason is UNKNOWN:
            return False
        return self.reason.always_retry or self.code.error_class is ErrorClass.RETRIABLE


def known_to_caller(found: Classified) -> Classified:
    """Return the classification of an error that the caller knows to be transient (RFC 49, 'Retryable with application
    context'): the server's answer shows that nothing was changed."""
    reason = SERVICE_RESPONSE_CODE_INDICATED if found.reason is UNKNOWN else found.reason
    return replace(found, reason=reason, is_known_to_caller=True)


UNCLASSIFIED = Classified(GENERIC_ERROR, UNKNOWN)


def check_together(catalogues: Sequence[Catalogue]) -> None:
    """Raise InputError if catalogues overlap: two have the same name, or give one code two meanings."""
    names: set[str] = set()
    meanings: dict[int, tuple[str, ErrorCode]] = {code.number: ("recovery", code) for code in OUR_OWN}
    for catalogue in catalogues:
        if catalogue.name in names:
            raise InputError(f"two catalogues are named {given.shown(catalogue.name)}; give one of them another name")
        names.add(catalogue.name)
        for code in catalogue.codes():
            other_catalogue, known_code = meanings.setdefault(code.number, (catalogue.name, code))
            if known_code != code:
                raise InputError(
                    f"catalogues {other_catalogue} and {catalogue.name} overlap: {code.number} is {known_code.name} in "
                    f"the one and {code.name} in the other"
                )


def classify(error: BaseException, catalogues: Sequence[Catalogue]) -> Classified:
    """Classify an error by itself, or by the nearest of its causes that a catalogue knows."""
    return _classify(error, catalogues, 0)


def _classify(error: BaseException, catalogues: Sequence[Catalogue], groups: int) -> Classified:
    for cause in _chain(error):
        if (classified := find(signs_of(cause), catalogues)) is not None:
            return classified
        if isinstance(cause, BaseExceptionGroup):
            return _classify_group(cause, catalogues, groups + 1) if groups < MAX_GROUPS else UNCLASSIFIED
    return UNCLASSIFIED


def _classify_group(
    group: BaseExceptionGroup[BaseException], catalogues: Sequence[Catalogue], groups: int
) -> Classified:
    """Classify a group by its most serious error, with the longest time that a server asks to wait.

    The most serious error is one that is not retriable, otherwise one that only an idempotent task may be retried
    after.
    """
    members = [_classify(member, catalogues, groups) for member in _members(group)]
    worst = min(members, key=lambda member: (member.is_retriable, member.reason.allows_non_idempotent_retry))
    longest = max((member.retry_after for member in members if member.retry_after is not None), default=None)
    return replace(worst, retry_after=longest)


def _members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors of a group and of its nested groups, without the groups."""
    errors: list[BaseException] = []
    remaining: list[BaseException] = [group]
    while remaining and len(errors) < MAX_MEMBERS:
        error = remaining.pop()
        if isinstance(error, BaseExceptionGroup):
            remaining.extend(reversed(error.exceptions))
        else:
            errors.append(error)
    return errors


def find(signs: Signs, catalogues: Sequence[Catalogue]) -> Classified | None:
    """Classify an error by its signs.

    If several catalogues know the error, the one counts that recognizes its class most closely (itself before
    superclasses). If two recognize the same class, the later catalogue counts, because users' catalogues come last.
    """
    best: tuple[int, int] | None = None
    result: Classified | None = None
    for place, catalogue in enumerate(catalogues):
        if (match := catalogue.find(signs)) is None:
            continue
        classified, types = match
        distance = min((signs.types.index(name) for name in types if name in signs.types), default=len(signs.types))
        if best is None or (distance, -place) < best:
            best, result = (distance, -place), classified
    return result


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the error that it was raised from, and so on."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < MAX_CAUSES:
        yield current
        seen.add(id(current))
        current = current.__cause__ or _wrapped_error(current)


def _wrapped_error(error: BaseException) -> BaseException | None:
    """Return the error that is the first argument of another error, as in `URLError(error)`.

    urllib sets no `__cause__`.
    """
    return next(
        (
            argument
            for argument in BaseException.__dict__["args"].__get__(error)[:1]
            if isinstance(argument, BaseException)
        ),
        None,
    )


@dataclass(slots=True)
class Catalogues:
    """The catalogues in use: the shipped ones, then users' in the order in which they were added."""

    all: list[Catalogue] = field(default_factory=list)

    def add(self, catalogue: Catalogue) -> None:
        """Add a catalogue. Raise InputError if it overlaps with another."""
        check_together([*self.all, catalogue])
        self.all.append(catalogue)
