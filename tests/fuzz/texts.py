"""Texts that nobody would write: escapes of terminals, markup, what can't be seen, what is long."""

from __future__ import annotations

import random
import re

PIECES = [
    "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\x9d", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\x85", "\x7f",
    "\nFORGED", "\r", "\n", "\t", "\x08", "\x00", "[/red]", "[bold]", "[link=http://x]", "[/]", "[", "]", ":smile:",
    "\\", "\\[", "{}", "%s", "%(x)s", "é", "注", "🚚", "\ufe0f", "\U000e0041", "'", '"', "$", "../", "a", "order",
    "x" * 50, "x" * 700, " ",
]  # fmt: skip
_RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufe0f\ud800-\udfff\U000e0041]"
)


def nasty(draw: random.Random) -> str:
    return "".join(draw.choices(PIECES, k=draw.randrange(1, 6)))


def acts(shown: str) -> str | None:
    """The first character in what was shown that a terminal would act on, or that is not seen."""
    found = _RAW.search(shown)
    return ascii(found[0]) if found else None
