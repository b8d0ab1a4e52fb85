"""What is said to a name that nobody knows: the one that may have been meant, or those there are."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

SHOWN = 20
"""Names that a message lists: as many as a terminal shows at a glance."""


def hint(name: str, known: Sequence[str], if_none: str) -> str:
    """`did you mean ...?`, `there are: ...`, or, where nothing is known, `if_none`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(known[:SHOWN])}" if known else if_none
