"""The grammar, and errors that point at what is wrong."""

from __future__ import annotations

import difflib
from datetime import datetime
from functools import cache

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedEOF, UnexpectedInput
from lark.exceptions import VisitError

from recovery.errors import InputError
from recovery.search.fields import FIELDS, BadValue, Field, Kind, read
from recovery.search.tree import All, And, Comparison, Node, Not, Or, Query, Term

MAX_LENGTH, MAX_TERMS = 10_000, 200
"""Of a search. Each term may cost a query for a page of processes."""
MAX_DEPTH = 50

GRAMMAR = r"""
    ?start: any
    ?any: both ("or"i both)*
    ?both: unary ("and"i? unary)*
    ?unary: "not"i unary -> negated
          | "(" any ")"
          | term
    term: FIELD SIGN? (QUOTED | VALUE)
        | FLAG -> flag

    FLAG.2: "overdue"i
    FIELD.3: /[A-Za-z_]+(\.[^\s:()"]+)?:/
    SIGN.3: />=|<=|>|</
    QUOTED.3: /"(?:[^"\\]|\\.)*"/
    VALUE: /[^\s()"<>=][^\s()"]*/
    %import common.WS
    %ignore WS
"""


def parse(text: str, now: datetime) -> Query:
    """The search that a text is; an empty one is every process. Relative times count from `now`.

    Raises InputError, which points at the column of what is wrong.
    """
    if not text.strip():
        return Query(text, All(), now)
    if len(text) > MAX_LENGTH:
        raise InputError(f"the search is longer than {MAX_LENGTH:,} characters")
    if _depth(text) > MAX_DEPTH:
        raise InputError(f"the search has more than {MAX_DEPTH} parentheses, one in another")
    try:
        tree = _grammar().parse(text)
        found: Node = _Reader(text, now).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, InputError):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        raise _unexpected(text, error) from None
    query = Query(text, found, now)
    if sum(1 for _ in query.terms()) > MAX_TERMS:
        raise InputError(f"the search has more than {MAX_TERMS} terms")
    return query


@cache
def _grammar() -> Lark:
    return Lark(GRAMMAR, parser="lalr", maybe_placeholders=False)


class _Reader(Transformer[Token, Node]):
    """From lark's tree to ours."""

    def __init__(self, text: str, now: datetime) -> None:
        super().__init__()
        self._source, self._now = text, now

    def any(self, parts: list[Node]) -> Node:
        return Or(tuple(parts)) if len(parts) > 1 else parts[0]

    def both(self, parts: list[Node]) -> Node:
        return And(tuple(parts)) if len(parts) > 1 else parts[0]

    def negated(self, parts: list[Node]) -> Node:
        return Not(parts[0])

    def flag(self, parts: list[Token]) -> Node:
        return Term(str(parts[0]).lower(), Comparison.IS, None)

    def term(self, parts: list[Token]) -> Node:
        name, value = parts[0], parts[-1]
        sign = str(parts[1]) if len(parts) == 3 else ""
        field, member = self._field(name)
        quoted = value.type == "QUOTED"
        text = _unquoted(str(value)) if quoted else str(value)
        if field.kind is Kind.FLAG:
            raise _wrong(self._source, name, f"{field.name} is {field.kind.value}")
        try:
            comparison, found = read(field, sign, text, quoted, self._now)
        except BadValue as error:
            raise _wrong(self._source, value, f"{field.name} {error}") from None
        return Term(field.name, comparison, found, member)

    def _field(self, token: Token) -> tuple[Field, str]:
        name, _, member = str(token)[:-1].partition(".")
        field = FIELDS.get(name.lower())
        if field is None or bool(member) != field.family:
            raise _wrong(self._source, token, _no_field(str(token)[:-1]))
        return field, member


def _no_field(name: str) -> str:
    known = [f"{field.name}.NAME" if field.family else field.name for field in FIELDS.values()]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"no field is called {name!r}; {there}"


def _unexpected(text: str, error: UnexpectedInput) -> InputError:
    place = len(text) if isinstance(error, UnexpectedEOF) else getattr(error, "pos_in_stream", None)
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        place = len(text)
    at = place if place is not None else len(text)
    if at >= len(text.rstrip()):
        said = "the search ends too early: a term is missing, or a closing parenthesis"
    elif text[at] == '"':
        said = "a quote that is not closed, or is in the wrong place"
    elif isinstance(error, UnexpectedCharacters) or (token is not None and token.type == "VALUE"):
        word = text[at:].split()[0]
        said = f"{word!r} is no term: a term is FIELD:VALUE, as in state:broken; {_no_field(word)}"
    else:
        said = f"{text[at:].split()[0]!r} is not expected here"
    return _pointed(text, at, said)


def _wrong(text: str, token: Token, said: str) -> InputError:
    return _pointed(text, token.start_pos or 0, said)


def _pointed(text: str, at: int, said: str) -> InputError:
    line = " ".join(text[max(0, at - 60) : at + 40].splitlines())
    return InputError(f"column {at + 1}: {said}\n{line}\n{' ' * min(at, 60)}^")


def _unquoted(text: str) -> str:
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def quoted(text: str) -> str:
    """A text as a value that means just that."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    return deepest + text.lower().count("not ")


def complete(incomplete: str) -> list[str]:
    """What a shell offers for the last term of a search that is being typed."""
    before, _, last = incomplete.rpartition(" ")
    start = f"{before} " if before else ""
    name, colon, value = last.partition(":")
    if colon and (field := FIELDS.get(name)) is not None:
        return [f"{start}{name}:{word}" for word in field.words if word.startswith(value)]
    names = [_shown(field) for field in FIELDS.values()]
    return [start + name for name in names if name.startswith(last)]


def _shown(field: Field) -> str:
    if field.family:
        return f"{field.name}."
    return field.name if field.kind is Kind.FLAG else f"{field.name}:"
