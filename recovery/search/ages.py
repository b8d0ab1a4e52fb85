"""Ages that have a sign, such as `ended:<90d`: written by earlier versions, and refused in what a person types.

`ended:<90d` meant *longer than 90 days ago*, and `idle:<90d` *for less than 90 days*: a sign reads as either. Stored
texts keep the meaning that they had, and `rewritten` gives them the form that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lark import Token, Tree

from recovery.search.fields import FIELDS, FORMS, Field, FieldKind, is_date
from recovery.wording import parse_duration, show_duration

MAX_SHOWN = 300
"""Characters of a search that an error writes out as a whole; of a longer one it shows the term alone."""


@dataclass(frozen=True, slots=True)
class SignedAge:
    """A term whose age has a sign, and where in its text the sign and the age are."""

    field: Field
    sign: str
    age: str
    start: int
    end: int

    @property
    def form(self) -> str:
        """The name of the form that means what the sign meant."""
        later = self.sign.startswith(">")
        if self.field.kind is FieldKind.SPAN:
            return "longer" if later else "shorter"
        return "within" if later else "before"

    def replaced_in(self, text: str, form: str) -> str:
        """Return the search with this form in the place of the sign."""
        return f"{text[: self.start]}{form}({self.age}){text[self.end :]}"


def signed_age(field: Field, sign: Token, value: Token, age: str) -> SignedAge | None:
    """Return the age of a term with a sign; None if it compares something else."""
    if field.kind not in FORMS or (field.kind is FieldKind.MOMENT and is_date(age)):
        return None
    return SignedAge(field, str(sign), age, sign.start_pos or 0, value.end_pos or 0)


def two_readings(text: str, term: Token, found: SignedAge) -> str:
    """Return the message that refuses a signed age: both searches that it may mean, to be copied."""
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
    """Yield all signed ages of a search that lark has read."""
    for term in tree.find_data("term"):
        tokens = [token for token in term.children if isinstance(token, Token)]
        if len(tokens) != 3:
            continue
        name, sign, value = tokens
        field = FIELDS.get(str(name)[:-1].lower())
        age = str(value)[1:-1] if value.type == "QUOTED" else str(value)
        if field is not None and (found := signed_age(field, sign, value, age)) is not None:
            yield found
