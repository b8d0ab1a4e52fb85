"""What a line says of a task: what it was called with and what it gave, as in `(20, name="x") → 40`, and what it waits
for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recovery.cli.output import seconds_between, utc
from recovery.health.untaken_tasks import why_refused
from recovery.records import Decision, DecisionState
from recovery.store.views.process_lookup import CallTexts
from recovery.wording import show_age

SHORT_ID = 8
"""Characters of a task's id that the tree shows."""
READ = 400
"""Characters that are read of a text, of which a line shows fewer."""

_PROMISE = re.compile(r'\{"\$promise":"([^"]*)"\}')


def call_line(texts: CallTexts | None, most: int) -> str:
    """Return the call and the value in at most `most` characters. A promise is shown as the short id of its task, in
    <>.

    Returns an empty text if neither is there.
    """
    if texts is None:
        return ""
    call = "" if not texts.args else f"({arguments(texts.args)})"
    value = "" if not texts.value else _plain(texts.value)
    if not value:
        return cut(call, most)
    # Each has half of the line, and what the other leaves.
    left = max(most - 3 - len(value), (most - 3) // 2)
    call = cut(call, left)
    return f"{call} → {cut(value, most - 3 - len(call))}"


def arguments(text: str) -> str:
    """Return `[[20],{"name":"x"}]` as `20, name="x"`, and the start of a text that was cut off."""
    try:
        positional, named = json.loads(text)
        given = [_dumped(one) for one in positional] + [f"{key}={_dumped(one)}" for key, one in named.items()]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return f"{_plain(text).removeprefix('[[')}…"
    return _plain(", ".join(given))


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters, with a sign at its end if something is left out."""
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


def decoded(text: str | None) -> Any:
    """Return the value of a JSON text, with promises as they are stored. Return None for a text that is missing or
    can't be read."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain(text: str) -> str:
    return _PROMISE.sub(lambda found: f"<{found[1][:SHORT_ID]}>", text)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
        return f"starts at {utc(due)}, in {show_age(seconds_between(now, due))}"
    told = " ".join(state.message.split())
    told = f": {told[:ERROR_SHOWN]}{'…' if len(told) > ERROR_SHOWN else ''}" if told else ""
    return (
        f"retry {state.count} in {show_age(seconds_between(now, due))}, until {utc(state.until)}, for "
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
