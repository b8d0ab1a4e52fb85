"""The version of this library, as it is installed."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "recovery-workers"
UNKNOWN = "unknown"


@lru_cache(maxsize=1)
def library_version() -> str:
    """As in `0.1.0`; `unknown` where it runs from a folder that nobody installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return UNKNOWN
