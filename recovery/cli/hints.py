"""What a task of a process waits for, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from recovery.cli.calls import SHORT_ID
from recovery.cli.output import seconds_between
from recovery.health.untaken_tasks import why_refused
from recovery.records import Decision, DecisionState
from recovery.wording import show_age

ERROR_SHOWN = 100
"""Characters of the text of an error that a task is tried again for."""
MAX_NAMED = 3
"""Tasks that a hint names."""


def hint(
    decision: Decision | None,
    unserved: Mapping[str, str],
    links: Mapping[str, Sequence[str]],
    decisions: Mapping[str, Decision],
    now: datetime,
    pinned: Mapping[str, str],
) -> str | None:
    """None for a task that waits for nothing. `unserved` is {actor: why no worker takes its tasks}, `links` {task:
    those that it waits for}, `pinned` {decision: what it waits for} of those that are pinned to a version which no live
    worker runs."""
    if decision is None:
        return "its decision is missing: `recovery check` tells what is done about it"
    why = unserved.get(decision.actor) or pinned.get(decision.id)
    if decision.state is DecisionState.WAITING:
        after = _after(links.get(decision.task_id, ()), decisions)
        return f"{after}; {why}" if why else after
    if (refused := why_refused(decision)) is not None and not why:
        return refused
    if decision.state is DecisionState.DELAYED:
        return f"{_starts(decision, now)}; {why}" if why else _starts(decision, now)
    if decision.state is DecisionState.QUEUED:
        return why or "waits for a free worker"
    return None


def _starts(decision: Decision, now: datetime) -> str:
    due = decision.recovery_time
    if due is None:
        return "its deadline is missing: `recovery check` tells what is done about it"
    if due <= now:
        return f"to be queued, due for {show_age(seconds_between(due, now))}"
    if (state := decision.retry) is None:
        return f"starts at {due:%Y-%m-%d %H:%M:%S} UTC, in {show_age(seconds_between(now, due))}"
    told = " ".join(state.message.split())
    told = f": {told[:ERROR_SHOWN]}{'…' if len(told) > ERROR_SHOWN else ''}" if told else ""
    return (
        f"retry {state.count} in {show_age(seconds_between(now, due))}, until {state.until:%Y-%m-%d %H:%M:%S} UTC, for "
        f"{state.kind}{told} ({state.code} {state.reason})"
    )


def _after(waits_for: Sequence[str], decisions: Mapping[str, Decision]) -> str:
    if not waits_for:
        return "to be queued"
    # What failed first: nothing else will do.
    order = sorted(waits_for, key=lambda task: not _failed(decisions.get(task)))
    named = [f"{task[:SHORT_ID]}{' (failed)' if _failed(decisions.get(task)) else ''}" for task in order[:MAX_NAMED]]
    more = f" and {len(order) - MAX_NAMED:,} more" if len(order) > MAX_NAMED else ""
    return f"waits for {', '.join(named)}{more}"


def _failed(decision: Decision | None) -> bool:
    return decision is not None and decision.failed
