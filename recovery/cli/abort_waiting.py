"""`recovery broken abort --waiting-for`: abort of what waits for an actor that no worker serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.engine import Resources


def count_abort_waiting(resources: Resources, actor: str, reason: str, limit: int | None, yes: bool) -> int:
    """Abort those processes, or, without `yes`, count them; how many they are."""
    from recovery.engine.operations.abort import abort_waiting, waiting_for

    if yes:
        return abort_waiting(resources, actor, reason, limit)
    waiting = len(waiting_for(resources, actor))
    return waiting if limit is None else min(limit, waiting)
