"""`recovery broken abort --waiting-for`: abort of what waits for an actor that no worker serves."""

from __future__ import annotations


def abort_waiting_for(actor: str, reason: str, limit: int | None, *, yes: bool, json: bool) -> None:
    """Abort those processes, or, without `yes`, say how many they are."""
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.operators.abort import abort_waiting, waiting_for
    from recovery.wording import count

    if yes:
        processes = abort_waiting(connect(), actor, reason, limit)
        said = f"{count(processes, 'process')} aborted"
    else:
        waiting = len(waiting_for(connect(), actor))
        processes = waiting if limit is None else min(limit, waiting)
        said = f"would abort {count(processes, 'process')} with tasks for {actor}; add --yes to do it"
    if json:
        print_json("broken abort", {"done": yes, "processes": processes})
    else:
        console().print(said)
