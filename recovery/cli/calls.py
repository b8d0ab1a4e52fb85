"""What a task was called with and what it gave, on one line: `(20, name="x") → 40`."""

from __future__ import annotations

import json
import re
from typing import Any

from recovery.store.views.process_details import CallTexts

SHORT_ID = 8
"""Characters of a task's id that the tree shows."""
READ = 400
"""Characters that are read of a text, of which a line shows fewer."""

_PROMISE = re.compile(r'\{"\$promise":"([^"]*)"\}')


def call_line(texts: CallTexts | None, most: int) -> str:
    """The call and the value, of `most` characters together; of a promise the short id of its task, in <>. Empty if
    neither is there."""
    if texts is None:
        return ""
    call = "" if not texts.args else f"({arguments(texts.args)})"
    value = "" if not texts.value else _plain(texts.value)
    if not value:
        return cut(call, most)
    # Each has half of the line, and what the other leaves.
    left = max(most - 3 - len(value), (most - 3) // 2)
    call = cut(call, left)
    return f"{call} → {cut(value, most - 3 - len(call))}"


def arguments(text: str) -> str:
    """`[[20],{"name":"x"}]` as `20, name="x"`; of one that was cut as far as it goes."""
    try:
        positional, named = json.loads(text)
        given = [_dumped(one) for one in positional] + [f"{key}={_dumped(one)}" for key, one in named.items()]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return f"{_plain(text).removeprefix('[[')}…"
    return _plain(", ".join(given))


def cut(text: str, most: int) -> str:
    """A text of at most so many characters, with a sign if something is left out."""
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


def decoded(text: str | None) -> Any:
    """A JSON text's value, promises as they are stored; None for what is not there, or can't be read."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(text: str) -> str:
    return _PROMISE.sub(lambda found: f"<{found[1][:SHORT_ID]}>", text)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
