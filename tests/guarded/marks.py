"""Passwords that are unmistakable, and the search for them in whatever somebody may read.

Each has characters that an address can't hold as they are, and a half before and behind them that is nowhere by
chance: so it is found as it is, percent-encoded, escaped in JSON or Python, and where an address was cut in its middle.
Of the whole, and of it as it stands in an address, there is the form in base64, too, in which messages come.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

ODD = "@/:?#%&é +"


@dataclass(frozen=True, slots=True)
class Mark:
    """A secret of one user."""

    name: str
    text: str

    @property
    def encoded(self) -> str:
        """As it stands in an address."""
        return quote(self.text, safe="")

    def forms(self) -> dict[str, bytes]:
        """{what it is called: what is looked for}."""
        left, _, right = self.text.partition(ODD)
        halves = {"the first half": left.encode(), "the second half": right.encode()} if right else {}
        whole = {"as it is": self.text.encode(), "percent-encoded": self.encoded.encode()}
        encoded = {f"in base64, {n}": text for n, text in enumerate([*_base64(self.text), *_base64(self.encoded)])}
        return {**whole, **halves, **encoded}


_RUN = secrets.token_hex(3)
"""Other runs on this machine are seen in the process list, and what they plant there."""


def password(name: str) -> Mark:
    """A password of this user's."""
    return Mark(name, f"{_RUN}{name}Vk{ODD}9wj{name}{_RUN}")


def key(name: str) -> Mark:
    """A key, of letters and digits alone."""
    return Mark(name, f"{_RUN}{name}Vk" + "0123456789abcdef" * 2)


def find(marks: Iterable[Mark], places: Mapping[str, bytes]) -> list[str]:
    """Each mark that can be read at one of the places: which, in which form, where, and what is around it."""
    looked_for = [(mark.name, form, text) for mark in marks for form, text in mark.forms().items()]
    return [
        f"{name} {form} in {place}: …{_around(content, at, len(text))}…"
        for place, content in places.items()
        for name, form, text in looked_for
        if (at := content.find(text)) >= 0
    ]


def _around(content: bytes, at: int, length: int) -> str:
    return content[max(0, at - 80) : at + length + 40].decode(errors="replace").replace("\n", "⏎")


def _base64(text: str) -> list[bytes]:
    """What is the same of its base64 whatever stands before and after it, for each of three places to begin."""
    raw, found = text.encode(), []
    for skipped in range(3):
        body = raw[skipped:]
        found.append(base64.b64encode(body[: len(body) // 3 * 3]))
    return found
