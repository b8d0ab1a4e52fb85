"""What is left of an error: the value that stands for it, and the mark by which alike ones are grouped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

FRAMES = 8
"""Of a stack so many frames count, those nearest to the error: further out alike errors come by many ways."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|(?=[a-f]*[0-9])[0-9a-f]{8,}|[0-9]+")


@dataclass(frozen=True, slots=True)
class Failure:
    """How a fallible task ended: what those that wait for it get in its value's place."""

    kind: str
    """Name of the error's type; `WorkTimeout` if it brought no result in time."""
    message: str
    """Up to 500 characters."""
    actor: str
    task: str
    """The task's id within its process."""


def fingerprint(kind: str, frames: Iterable[tuple[str, str]] = ()) -> str:
    """A short mark that alike errors share: of their kind and of where they were raised, as (module, function), the
    outermost first.

    Without line numbers, the roots of paths, and numbers, ids and addresses in names, so that a deployment, another
    machine or a generated name does not make a new error of an old one. A recursion counts as one frame, however deep.
    """
    kept: list[str] = []
    for module, function in frames:
        frame = _VARYING.sub("#", f"{module}:{function}")
        if not kept or kept[-1] != frame:
            kept.append(frame)
    return blake2b("\n".join([kind, *kept[-FRAMES:]]).encode(errors="replace"), digest_size=6).hexdigest()
