"""The fields of the search language: how their values are read, and what a shell offers for the term being typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from recovery.limits import LONGEST
from recovery.records import ProcessState
from recovery.records.search_names import SIGN
from recovery.search.query import Comparison, Value
from recovery.wording import parse_duration

MAX_TEXT = 1000


class FieldKind(Enum):
    """What values a field takes."""

    TEXT = "a text, or the beginning of one with * at its end"
    EXACT = "a text"
    PART = "a part of a text, in upper or lower case"
    WORD = "one of"
    NUMBER = "a number, with >, <, >= or <= before it if it is not to be exactly that"
    MOMENT = (
        "before(90d), which is longer than 90 days ago, within(90d), which is in the last 90 days, or a date in UTC "
        "with > for later and < for earlier (<2026-01-31, >=2026-01-31T10:00)"
    )
    SPAN = "longer(1h) or shorter(1h), with a time such as 90s, 2h or 30d"
    FLAG = "nothing: it stands alone"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the language."""

    name: str
    kind: FieldKind
    help: str
    words: tuple[str, ...] = ()
    family: bool = False
    """Whether a name of the user's follows it: `label.customer`."""


FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("type", FieldKind.TEXT, "The process type."),
        Field("state", FieldKind.WORD, "The process's state.", tuple(state.value for state in ProcessState)),
        Field("id", FieldKind.TEXT, "The process's id."),
        Field("custom", FieldKind.TEXT, "Its custom id, or the one that it had until another process took its place."),
        Field("label", FieldKind.TEXT, "A label that it was started with: label.customer:acme.", family=True),
        Field("key", FieldKind.TEXT, "What of its type it is for: the key of its marker."),
        Field("version", FieldKind.TEXT, "The version of the application that started it, or that ran a task of it."),
        Field(
            "pinned", FieldKind.TEXT, "The version that alone runs its tasks, beside those that declare it compatible."
        ),
        Field("started", FieldKind.MOMENT, "When it was started."),
        Field("ended", FieldKind.MOMENT, "When it ended; what runs did not."),
        Field("idle", FieldKind.SPAN, "For how long nothing has changed in a process that has not ended well."),
        Field("overdue", FieldKind.FLAG, "A deadline of one of its records is past."),
        Field(
            "refused",
            FieldKind.FLAG,
            "A task of it waits for a newer worker, or for one of the version that it is pinned to.",
        ),
        Field("error", FieldKind.TEXT, "The kind of an error for which it, or a task of it, has no result."),
        Field("message", FieldKind.PART, "A part of that error's message."),
        Field("code", FieldKind.NUMBER, "That error's code."),
        Field("fingerprint", FieldKind.TEXT, "What alike errors have in common, as `recovery broken list` has it."),
        Field("actor", FieldKind.TEXT, "An actor of which a task is to be done, or has failed."),
        Field("timeouts", FieldKind.NUMBER, "How many attempts of one of its tasks were lost."),
        Field(
            "rule",
            FieldKind.EXACT,
            "A rule of the failure map by which it was repaired last, or that an operation found in the last 90 days.",
        ),
    )
}


FORMS: dict[FieldKind, dict[str, Comparison]] = {
    FieldKind.MOMENT: {"before": Comparison.BELOW, "within": Comparison.ABOVE},
    FieldKind.SPAN: {"longer": Comparison.ABOVE, "shorter": Comparison.BELOW},
}
"""The names by which an age is compared, as in `ended:before(90d)`; they say what they mean without a sign."""


class BadValue(ValueError):
    """A value that a field can't have; its text says what it can."""


def read(field: Field, sign: str, text: str, quoted: bool, now: datetime) -> tuple[Comparison, Value]:
    """Return how a term of this field compares; its ages may have signs (`recovery.search.ages`). Raises BadValue."""
    if len(text) > MAX_TEXT:
        raise BadValue(f"is longer than {MAX_TEXT:,} characters")
    if field.kind is FieldKind.PART:
        return _part(field, sign, text, quoted)
    if field.kind in (FieldKind.TEXT, FieldKind.EXACT, FieldKind.WORD):
        return _text(field, sign, text, quoted)
    comparison = Comparison(sign or "=")
    if field.kind is FieldKind.NUMBER:
        return comparison, _number(text)
    if field.kind is FieldKind.SPAN:
        if not sign:
            raise BadValue(f"is {field.kind.value}")
        return comparison, _span(field, text)
    return _moment(field, comparison, text, now)


def read_age(field: Field, form: str, text: str, now: datetime) -> tuple[Comparison, Value]:
    """Return how a term such as `ended:before(90d)` compares. Raises BadValue."""
    forms = FORMS.get(field.kind, {})
    if form not in forms:
        raise BadValue(f"is {field.kind.value}; {form}(…) is for {_users_of(form)}")
    span = _span(field, text)
    return forms[form], span if field.kind is FieldKind.SPAN else now - timedelta(seconds=span)


def is_date(text: str) -> bool:
    """Whether the value of a field of moments is meant as a date, and not as an age."""
    return text[:4].isdigit() and text[4:5] == "-"


def _text(field: Field, sign: str, text: str, quoted: bool) -> tuple[Comparison, Value]:
    if sign:
        raise BadValue(f"{sign} is for numbers and times; {field.name} is {field.kind.value}")
    if field.words and text not in field.words:
        near = difflib.get_close_matches(text, field.words, n=1, cutoff=0.5)
        raise BadValue(f"is one of {', '.join(field.words)}{f'; did you mean {near[0]}?' if near else ''}")
    if field.kind is FieldKind.TEXT and text.endswith("*") and not quoted:
        if "\0" in text:
            raise BadValue("can't be the beginning of a text with the character NUL; remove that")
        return Comparison.STARTS, text[:-1]
    return Comparison.IS, text


def _part(field: Field, sign: str, text: str, quoted: bool) -> tuple[Comparison, Value]:
    """Without the stars around it, which a part does not need."""
    part = text if quoted else text.strip("*")
    if sign or not part:
        raise BadValue(f"is {field.kind.value}")
    if "\0" in part:
        raise BadValue("can't have the character NUL in it; remove that")
    return Comparison.CONTAINS, part


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise BadValue(f"is {FieldKind.NUMBER.value}") from None
    if value != value or abs(value) > 1e15:
        raise BadValue(f"is {FieldKind.NUMBER.value}")
    return int(value) if value.is_integer() else value


def _span(field: Field, text: str) -> float:
    try:
        return min(parse_duration(text), LONGEST)
    except ValueError as error:
        raise BadValue(f"is {field.kind.value}: {error}") from None


def _users_of(form: str) -> str:
    kinds = [kind for kind, forms in FORMS.items() if form in forms]
    return " and ".join(field.name for field in FIELDS.values() if field.kind in kinds)


def _moment(field: Field, comparison: Comparison, text: str, now: datetime) -> tuple[Comparison, Value]:
    if not is_date(text):
        if comparison is Comparison.IS:
            raise BadValue(f"is {FieldKind.MOMENT.value}")
        return comparison, now - timedelta(seconds=_span(field, text))
    if comparison is Comparison.IS:
        raise BadValue("a day or moment takes > or < before it")
    try:
        moment = datetime.fromisoformat(text)
        if len(text) == len("2026-01-31") and comparison in (Comparison.ABOVE, Comparison.AT_MOST):
            # A day as a whole: after it, or until its end.
            comparison = Comparison.AT_LEAST if comparison is Comparison.ABOVE else Comparison.BELOW
            moment += timedelta(days=1)
        return comparison, moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise BadValue("is a date from 0001-01-01 to 9999-12-30 in UTC") from None
    except ValueError:
        raise BadValue(f"is {FieldKind.MOMENT.value}") from None


Values = Callable[[str, str, str], Iterable[str]]
"""(field, member, start) → what there is of it that begins so: `("label", "customer", "ac")`. Of the field "label" and
no member names of labels, of the field "@" names of saved searches."""

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"?|[^\s()"]+|([\s()])')
"""A text in quotes, closed or not; what is in none; or a space or parenthesis, after which a term begins."""

_AGE_BEGUN = re.compile(r':(before|within|longer|shorter)\([^()\s":]*\Z', re.IGNORECASE)
"""An age that is being typed: nothing is offered for its number."""


def complete(typed: str, values: Values) -> tuple[str, list[str]]:
    """Return what was typed before the last term, and the texts that may be in that term's place.

    None of them is in quotes: a value that needs some is to be left out, since shells can't be offered it.
    """
    if _AGE_BEGUN.search(typed):
        return typed, []
    start = max((piece.end() for piece in _PIECES.finditer(typed) if piece[1]), default=0)
    return typed[:start], _terms(typed[start:], values)


def _terms(term: str, values: Values) -> list[str]:
    if term.startswith(SIGN):
        return [f"{SIGN}{name}" for name in values(SIGN, "", term[1:])]
    head, colon, value = term.partition(":")
    name, _, member = head.partition(".")
    field = FIELDS.get(name.lower())
    if field is not None and field.family and not colon and "." in head:
        return _only_one([f"{name}.{one}:" for one in values(field.name, "", member)], values)
    if not colon:
        names = [_shown(one) for one in FIELDS.values()]
        return _only_one([one for one in names if one.startswith(head.lower())], values)
    if field is None or field.kind is FieldKind.FLAG or bool(member) != field.family:
        return []
    candidates = field.words or values(field.name, member, value)
    # A value that begins with = is one in quotes only.
    return [f"{head}:{one}" for one in candidates if one.startswith(value) and not one.startswith("=")]


def _only_one(names: list[str], values: Values) -> list[str]:
    """These; a field alone with its values, since a shell takes the only one that it is offered for a whole word."""
    if len(names) == 1 and names[0].endswith((":", ".")):
        return _terms(names[0], values) or names
    return names


def _shown(field: Field) -> str:
    if field.family:
        return f"{field.name}."
    return field.name if field.kind is FieldKind.FLAG else f"{field.name}:"
