"""The fields of the search language: parses the values of terms, and completes terms for shells."""

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
"""Maximum length of a term's value, in characters."""


class FieldKind(Enum):
    """The kind of values that a field has. The enum's values describe them in error messages."""

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
    """A field of the search language."""

    name: str
    kind: FieldKind
    help: str
    words: tuple[str, ...] = ()
    family: bool = False
    """Whether a user-defined name follows the field's name, as in `label.customer`."""


FIELDS: dict[str, Field] = {
    field.name: field
    for field in (
        Field("type", FieldKind.TEXT, "The process type."),
        Field("state", FieldKind.WORD, "The process's state.", tuple(state.value for state in ProcessState)),
        Field("id", FieldKind.TEXT, "The process's id."),
        Field("custom", FieldKind.TEXT, "Its custom id, or its former custom id, which another process has taken."),
        Field("label", FieldKind.TEXT, "A label of the process, as in label.customer:acme.", family=True),
        Field("key", FieldKind.TEXT, "The process's key, which is also its marker's."),
        Field("version", FieldKind.TEXT, "A version of the application that started the process or ran its tasks."),
        Field(
            "pinned", FieldKind.TEXT, "The version to which its tasks are pinned; compatible versions run them, too."
        ),
        Field("started", FieldKind.MOMENT, "When the process was started."),
        Field("ended", FieldKind.MOMENT, "When the process ended. Running processes do not match."),
        Field("idle", FieldKind.SPAN, "How long nothing has changed in a process with open tasks."),
        Field("overdue", FieldKind.FLAG, "The deadline of one of the process's records is past."),
        Field(
            "refused",
            FieldKind.FLAG,
            "A task of the process waits for a newer worker, or for a worker of its pinned version.",
        ),
        Field("error", FieldKind.TEXT, "The kind of the error with which the process, or one of its tasks, failed."),
        Field("message", FieldKind.PART, "A part of that error's message."),
        Field("code", FieldKind.NUMBER, "That error's code."),
        Field("fingerprint", FieldKind.TEXT, "The fingerprint of similar errors, as in `recovery broken list`."),
        Field("actor", FieldKind.TEXT, "The actor of an open or failed task of the process."),
        Field("timeouts", FieldKind.NUMBER, "The number of lost attempts of one of the process's tasks."),
        Field(
            "rule",
            FieldKind.EXACT,
            "The rule of the process's last repair, or a rule that an operation found in the last 90 days.",
        ),
    )
}


FORMS: dict[FieldKind, dict[str, Comparison]] = {
    FieldKind.MOMENT: {"before": Comparison.BELOW, "within": Comparison.ABOVE},
    FieldKind.SPAN: {"longer": Comparison.ABOVE, "shorter": Comparison.BELOW},
}
"""{kind: {name of a form: its comparison}}, for ages such as `ended:before(90d)`."""


class BadValue(ValueError):
    """Raised for a value that a field cannot have. The text describes the values that it can have."""


def read(field: Field, sign: str, text: str, quoted: bool, now: datetime) -> tuple[Comparison, Value]:
    """Return the comparison and the value of a term. Ages may have signs (`recovery.search.ages`).

    Args:
        field: The field of the term.
        sign: The comparison sign, empty if there is none.
        text: The value without quotes.
        quoted: Whether the value was in quotes, so that `*` is not a wildcard.
        now: The moment from which ages count.

    Raises:
        BadValue: The field cannot have this sign or value.
    """
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
    """Return the comparison and the value of a term such as `ended:before(90d)`.

    Args:
        field: The field of the term.
        form: The name of the form, for example `before`.
        text: The age.
        now: The moment from which the age counts.

    Raises:
        BadValue: The field has no such form, or the age is not a duration.
    """
    forms = FORMS.get(field.kind, {})
    if form not in forms:
        raise BadValue(f"is {field.kind.value}; {form}(…) is for {_users_of(form)}")
    span = _span(field, text)
    return forms[form], span if field.kind is FieldKind.SPAN else now - timedelta(seconds=span)


def is_date(text: str) -> bool:
    """Return whether the value of a MOMENT field is written as a date, not as an age."""
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
    """Return the comparison and value of a PART term. Stars around an unquoted value are removed."""
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
    """Return the names of the fields that have this form, in words."""
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
            # A date means the whole day: `>` means after its end, `<=` before its end.
            comparison = Comparison.AT_LEAST if comparison is Comparison.ABOVE else Comparison.BELOW
            moment += timedelta(days=1)
        return comparison, moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise BadValue("is a date from 0001-01-01 to 9999-12-30 in UTC") from None
    except ValueError:
        raise BadValue(f"is {FieldKind.MOMENT.value}") from None


Values = Callable[[str, str, str], Iterable[str]]
"""A function (field, member, beginning) that returns the known values with this beginning, as for `("label",
"customer", "ac")`. For the field "label" without a member: names of labels. For "@": names of saved searches."""

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"?|[^\s()"]+|([\s()])')
"""A quoted text, closed or not; an unquoted text; or (group 1) a space or parenthesis, after which a term begins."""

_AGE_BEGUN = re.compile(r':(before|within|longer|shorter)\([^()\s":]*\Z', re.IGNORECASE)
"""An age that is being typed, for which there are no completions."""


def complete(typed: str, values: Values) -> tuple[str, list[str]]:
    """Return the text before the last typed term, and the completions of that term.

    Completions are not quoted. `values` must leave out values that need quotes, because shells cannot complete them.

    Args:
        typed: The search as far as it was typed.
        values: Returns the known values of a field.
    """
    if _AGE_BEGUN.search(typed):
        return typed, []
    start = max((piece.end() for piece in _PIECES.finditer(typed) if piece[1]), default=0)
    return typed[:start], _terms(typed[start:], values)


def _terms(term: str, values: Values) -> list[str]:
    """Return the completions of a term."""
    if term.startswith(SIGN):
        return [f"{SIGN}{name}" for name in values(SIGN, "", term[1:])]
    head, colon, value = term.partition(":")
    name, _, member = head.partition(".")
    field = FIELDS.get(name.lower())
    if field is not None and field.family and not colon and "." in head:
        return _with_values([f"{name}.{label}:" for label in values(field.name, "", member)], values)
    if not colon:
        names = [_shown(known_field) for known_field in FIELDS.values()]
        return _with_values([candidate for candidate in names if candidate.startswith(head.lower())], values)
    if field is None or field.kind is FieldKind.FLAG or bool(member) != field.family:
        return []
    candidates = field.words or values(field.name, member, value)
    # A value that begins with = needs quotes.
    return [f"{head}:{known}" for known in candidates if known.startswith(value) and not known.startswith("=")]


def _with_values(names: list[str], values: Values) -> list[str]:
    """Return the names. Replace a single name of a field by its terms with values, because a shell takes a single
    completion as a complete word."""
    if len(names) == 1 and names[0].endswith((":", ".")):
        return _terms(names[0], values) or names
    return names


def _shown(field: Field) -> str:
    """Return a field's name with the character that follows it in a term."""
    if field.family:
        return f"{field.name}."
    return field.name if field.kind is FieldKind.FLAG else f"{field.name}:"
