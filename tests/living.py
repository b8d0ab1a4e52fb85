"""Whether a process lives, its parent having noticed its end or not."""

from __future__ import annotations

import psutil


def lives(pid: int) -> bool:
    """Whether there is such a process, and no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
