"""Connections of an executor's process: made once, whatever number of ranges it gets."""

from __future__ import annotations

from functools import lru_cache

from recovery.engine import Resources
from recovery.settings import Settings


@lru_cache(maxsize=4)
def connected(settings: Settings) -> Resources:
    """Resources of these settings."""
    return Resources.connect(settings)
