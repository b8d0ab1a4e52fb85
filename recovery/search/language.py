"""Parses searches: the grammar, saved searches in other searches, and limits. Errors name the column of the problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from recovery.errors import InputError
from recovery.records import given
from recovery.search.ages import SignedAge, signed_age, signed_ages, two_readings
from recovery.search.fields import FIELDS, BadValue, Field, FieldKind, read, read_age
from recovery.search.pointing import no_field, no_search, unexpected, wrong
from recovery.search.query import All, And, Comparison, Node, Not, Or, Query, Term, in_words

MAX_LENGTH, MAX_TERMS = 10_000, 200
"""Maximum length of a search in characters, and maximum number of its terms. Each term may cost a query for each page
of processes."""
MAX_DEPTH = 50
"""Maximum nesting of parentheses, of saved searches, and of `not`."""

GRAMMAR = r"""
    ?start: any
    ?any: both (_OR both)*
    ?both: unary (_AND? unary)*
    ?unary: NOT+ single -> negated
          | single
    ?single: "(" any ")"
          | term
          | SAVED -> saved
    term: FIELD SIGN? (QUOTED | VALUE)
        | FIELD AGE -> age
        | FLAG -> flag

    _OR.2: /or(?=[\s()@]|\Z)/i
    _AND.2: /and(?=[\s()@]|\Z)/i
    NOT.2: /not(?=[\s()@]|\Z)/i
    FLAG.2: /(overdue|refused)(?=[\s()@]|\Z)/i
    FIELD.3: /[A-Za-z_]+(\.[^\s:()"]+)?:/
    SIGN.3: />=|<=|>|</
    QUOTED.3: /"(?:[^"\\]|\\.)*"/
    AGE.3: /(before|within|longer|shorter)\([^()":]*\)/i
    SAVED.3: /@[^\s()"]*/
    VALUE: /[^\s()"<>=][^\s()"]*/
    WS: /[ \t\f\r\n]+/
    %ignore WS
"""

_QUOTED_OR_PARENTHESIS = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')

Saved = Callable[[], Mapping[str, str]]
"""Returns {name: text} of all saved searches. Called at most once, and only if a search names a saved search."""


def parse(text: str, now: datetime, saved: Saved = dict, *, name: str | None = None, is_stored: bool = False) -> Query:
    """Return the parsed search. An empty text matches every process.

    Args:
        text: The search.
        now: The moment from which relative times count.
        saved: Returns the saved searches.
        name: The name under which the search will be saved. Such a search must not contain itself.
        is_stored: Whether the text was stored, so that ages may have the signs of earlier versions
            (`recovery.search.ages`). Signs are refused in texts that a person types.

    Raises:
        InputError: The search is invalid. The message shows the column of the problem.
    """
    if not text.strip():
        return Query(text, All(), now)
    return _Library(saved, now).read(text, (name,) if name is not None else (), is_stored=is_stored)


def stored_in_words(text: str, now: datetime) -> str:
    """Return in words which processes a stored search selects. Its relative times count from `now`."""
    try:
        return in_words(parse(text, now, is_stored=True))
    except InputError as error:  # written by another version, or by another program
        return f"unknown, because the selection can't be read: {str(error).partition(chr(10))[0]}"


def has_signed_ages(text: str) -> bool:
    """Return whether a stored search has ages with signs; False if it cannot be parsed."""
    try:
        return bool(_signed_ages(text))
    except InputError:
        return False


def rewritten(text: str) -> str:
    """Return a stored search with forms such as `before(90d)` instead of ages with signs.

    Raises:
        InputError: The search cannot be parsed, or would be too long.
    """
    for age in reversed(_signed_ages(text)):  # backwards, because a replacement moves all that follows it
        text = age.replaced_in(text, age.form)
    _check_size(text)
    return text


def _signed_ages(text: str) -> list[SignedAge]:
    """Return the ages with signs in a stored search, in the order of the text."""
    if not text.strip():
        return []
    _check_size(text)
    try:
        return sorted(signed_ages(_grammar().parse(text)), key=lambda age: age.start)
    except UnexpectedInput as error:
        raise unexpected(text, error) from None


class _Library:
    """The saved searches that a search contains. Each is parsed once, however often it is named."""

    def __init__(self, saved: Saved, now: datetime) -> None:
        self._saved, self._now = cache(saved), now
        self._read: dict[str, Query] = {}

    def read(self, text: str, within: tuple[str, ...], *, is_stored: bool) -> Query:
        """Return the parsed search. `within` names the saved searches that contain it, outermost first."""
        _check_size(text)
        if len(within) > MAX_DEPTH:
            raise InputError(f"the search has more than {MAX_DEPTH} saved searches, one in another")
        reader = _Reader(text, self, within, self._now, is_stored=is_stored)
        try:
            tree: Node = reader.transform(_grammar().parse(text))
        except VisitError as error:
            if isinstance(error.orig_exc, InputError):
                raise error.orig_exc from None
            raise
        except UnexpectedInput as error:
            raise unexpected(text, error) from None
        query = Query(
            _expanded(text, reader.named), tree, self._now, tuple(str(token)[1:] for token, _ in reader.named)
        )
        _check_size(query.text)
        if sum(1 for _ in query.terms()) > MAX_TERMS:
            raise InputError(f"the search has more than {MAX_TERMS} terms")
        return query

    def find(self, name: str, within: tuple[str, ...]) -> Query:
        """Return the saved search with this name. `within` names the saved searches that name it, outermost first."""
        if name in within:
            raise InputError(f"@{name} would be a part of itself")
        if name not in self._read:
            texts = self._saved()
            if name not in texts:
                raise InputError(no_search(name, texts))
            try:
                self._read[name] = self.read(texts[name], (*within, name), is_stored=True)
            except InputError as error:
                # Only the first line: the others point into the text of the saved search, which the user does not see.
                message = str(error).partition("\n")[0]
                raise InputError(f"in @{name}{', ' if message.startswith('column') else ': '}{message}") from None
        return self._read[name]


def _expanded(text: str, named: list[tuple[Token, Query]]) -> str:
    """Return the text with the texts of saved searches instead of their names."""
    if len(named) == 1 and text.strip() == named[0][0]:
        return named[0][1].text
    for token, query in reversed(named):
        text = f"{text[: token.start_pos]}({query.text}){text[token.end_pos :]}"
    return text


def _check_size(text: str) -> None:
    """Raise InputError if a search is too long, too deeply nested, or not valid Unicode."""
    if not given.is_unicode(text):
        raise InputError("the search holds a lone surrogate, which is not text; remove it")
    if len(text) > MAX_LENGTH:
        raise InputError(f"the search is longer than {MAX_LENGTH:,} characters")
    if _depth(text) > MAX_DEPTH:
        raise InputError(f"the search has more than {MAX_DEPTH} parentheses, one in another")


@cache
def _grammar() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False)


class _Reader(Transformer[Token, Node]):
    """Transforms lark's tree to a tree of nodes. Its public methods are named after the rules of the grammar."""

    def __init__(
        self, text: str, library: _Library, within: tuple[str, ...], now: datetime, *, is_stored: bool
    ) -> None:
        super().__init__()
        self._is_stored = is_stored
        self._source, self._library, self._within, self._now = text, library, within, now
        self.named: list[tuple[Token, Query]] = []
        """The saved searches that the search names, in the order of the text."""

    def any(self, parts: list[Node]) -> Node:
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def both(self, parts: list[Node]) -> Node:
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def negated(self, parts: list[Token | Node]) -> Node:
        *negations, part = parts
        if len(negations) > MAX_DEPTH:
            raise InputError(f"the search has more than {MAX_DEPTH} times `not`, one after another")
        assert not isinstance(part, Token)
        return Not(part) if len(negations) % 2 else part

    def saved(self, parts: list[Token]) -> Node:
        try:
            query = self._library.find(str(parts[0])[1:], self._within)
        except InputError as error:
            raise wrong(self._source, parts[0], str(error)) from None
        self.named.append((parts[0], query))
        return query.tree

    def flag(self, parts: list[Token]) -> Node:
        return Term(str(parts[0]).lower(), Comparison.IS, None)

    def term(self, parts: list[Token]) -> Node:
        name, value = parts[0], parts[-1]
        sign = str(parts[1]) if len(parts) == 3 else ""
        field, member = self._field(name)
        quoted = value.type == "QUOTED"
        text = _unquoted(str(value)) if quoted else str(value)
        if field.kind is FieldKind.FLAG:
            raise wrong(self._source, name, f"{field.name} is {field.kind.value}")
        try:
            comparison, operand = read(field, sign, text, quoted, self._now)
        except BadValue as error:
            raise wrong(self._source, value, f"{field.name} {error}") from None
        if not self._is_stored and sign and (age := signed_age(field, parts[1], value, text)) is not None:
            raise wrong(self._source, name, two_readings(self._source, name, age))
        return Term(field.name, comparison, operand, member)

    def age(self, parts: list[Token]) -> Node:
        name, value = parts
        field, member = self._field(name)
        form, _, text = str(value)[:-1].partition("(")
        if field.kind is FieldKind.FLAG:
            raise wrong(self._source, name, f"{field.name} is {field.kind.value}")
        try:
            comparison, operand = read_age(field, form.lower(), text.strip(), self._now)
        except BadValue as error:
            raise wrong(self._source, value, f"{field.name} {error}") from None
        return Term(field.name, comparison, operand, member)

    def _field(self, token: Token) -> tuple[Field, str]:
        name, _, member = str(token)[:-1].partition(".")
        field = FIELDS.get(name.lower())
        if field is None or bool(member) != field.family:
            raise wrong(self._source, token, no_field(str(token)[:-1]))
        return field, member


def _unquoted(text: str) -> str:
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def quoted(text: str) -> str:
    """Return a text as a quoted value of a search, with no special characters in effect."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _depth(text: str) -> int:
    """Return the maximum nesting of parentheses outside of quotes."""
    depth = deepest = 0
    for match in _QUOTED_OR_PARENTHESIS.finditer(text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest
