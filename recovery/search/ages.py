"""Handles ages with a sign, such as `ended:<90d`, which earlier versions stored and which are refused when typed.

`ended:<90d` means *longer than 90 days ago*, but `idle:<90d` means *for less than 90 days*, so readers may mistake one
for the other. Stored searches keep their meaning; `rewritten` replaces signs by forms that name the meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lark import Token, Tree

from recovery.search.fields import FIELDS, FORMS, Field, FieldKind, is_date
from recovery.wording import parse_duration, show_duration

MAX_SHOWN = 300
"""Maximum length of a search that an error shows completely, in characters; of a longer search it shows the term."""


@dataclass(frozen=True, slots=True)
class SignedAge:
    """The age of a term with a sign; `start` and `end` enclose the sign and the age in the text of the search."""

    field: Field
    sign: str
    age: str
    start: int
    end: int

    @property
    def form(self) -> str:
        """Return the name of the form that has the meaning of the sign."""
        is_greater = self.sign.startswith(">")
        if self.field.kind is FieldKind.SPAN:
            return "longer" if is_greater else "shorter"
        return "within" if is_greater else "before"

    def replaced_in(self, text: str, form: str) -> str:
        """Return the search with this form instead of the sign."""
        return f"{text[: self.start]}{form}({self.age}){text[self.end :]}"


def signed_age(field: Field, sign: Token, value: Token, age: str) -> SignedAge | None:
    """Return the age of a term with a sign; None if the field has no ages or the value is a date."""
    if field.kind not in FORMS or (field.kind is FieldKind.MOMENT and is_date(age)):
        return None
    return SignedAge(field, str(sign), age, sign.start_pos or 0, value.end_pos or 0)


def two_readings(text: str, term: Token, found: SignedAge) -> str:
    """Return the error message for a signed age, with both searches that it may mean, ready to be copied."""
    searches, time = [], show_duration(parse_duration(found.age))
    for form in FORMS[found.field.kind]:
        search = found.replaced_in(text, form)
        if len(search) > MAX_SHOWN:
            search = f"{term}{form}({found.age})"
        earlier = ", as earlier versions took it" if form == found.form else ""
        searches.append((search, f"{_meaning(found.field, form, time)}{earlier}"))
    width = max(len(search) for search, _ in searches)
    lines = "\n".join(f"  {search:<{width}}   {meaning}" for search, meaning in searches)
    return f"{term}{found.sign}{found.age} can be read in two ways; write the one that you mean:\n{lines}"


def _meaning(field: Field, form: str, time: str) -> str:
    return {
        "before": f"{field.name} longer than {time} ago",
        "within": f"{field.name} in the last {time}",
        "longer": f"nothing has changed for longer than {time}",
        "shorter": f"something has changed in the last {time}",
    }[form]


def signed_ages(tree: Tree[Token]) -> Iterator[SignedAge]:
    """Yield all signed ages in the tree of a search that lark has parsed."""
    for term in tree.find_data("term"):
        tokens = [token for token in term.children if isinstance(token, Token)]
        if len(tokens) != 3:
            continue
        name, sign, value = tokens
        field = FIELDS.get(str(name)[:-1].lower())
        age = str(value)[1:-1] if value.type == "QUOTED" else str(value)
        if field is not None and (parsed := signed_age(field, sign, value, age)) is not None:
            yield parsed
