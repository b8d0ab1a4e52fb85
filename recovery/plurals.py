"""Numbers with what they count: 1 task, 2 tasks, 3 processes."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """`what` in the singular. Its plural ends with s, or es."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"
