"""`recovery broken abort --waiting-for`: what waits for an actor that no worker serves is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.cli.interrupted import count

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources


def print_abort_waiting(
    out: Console, resources: Resources, actor: str, reason: str, limit: int | None, yes: bool
) -> None:
    """Abort those processes, or, without `yes`, say how many they are."""
    from recovery.engine.operations.abort import abort_waiting, waiting_for

    if yes:
        said = f"{count(abort_waiting(resources, actor, reason, limit), 'process')} aborted"
    else:
        waiting = len(waiting_for(resources, actor))
        processes = waiting if limit is None else min(limit, waiting)
        said = f"would abort {count(processes, 'process')} with tasks for {actor}; add --yes to do it"
    out.print(said, soft_wrap=True)
