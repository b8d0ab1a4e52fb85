"""The error of a step that fails."""

from __future__ import annotations

from collections.abc import Callable


def caught(step: Callable[[], object]) -> Exception:
    """The error that a step ends with."""
    try:
        done = step()
    except Exception as error:
        return error
    raise AssertionError(f"no error, but {done!r}")
