"""What spans there are, and what they say (docs/tracing.md).

Nothing is said that may not be for everybody: no arguments, values, or messages of errors. Nothing here raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recovery.records import Decision, DecisionState, ids
from recovery.tracing.opened import NOTHING, Open, Traced, context_of, fails, harmless, named
from recovery.tracing.setup import tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

Claims = Callable[[Iterable[str]], Mapping[str, datetime]]
"""Given decisions, {decision: when the last attempt for it claimed it}."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """Decisions as they were before a repair, and when that was, in nanoseconds."""

    decisions: Sequence[Decision] = ()
    at: int = 0


@harmless(NOTHING)
def starting(process_type: str) -> Traced:
    """The start of a process, under the span that its caller is in."""
    if (making := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import SpanKind

    said = named({"process_type": process_type})
    return Open(making.start_span(f"start {process_type}", kind=SpanKind.PRODUCER, attributes=said), process_type)


@harmless(NOTHING)
def attempt(decision: Decision) -> Traced:
    """An attempt for a decision that was just claimed; and before it the time that it was queued."""
    if (making := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import SpanKind

    under, now = context_of(decision.trace), time.time_ns()
    said = _of_attempt(decision)
    if decision.trace is not None:  # else there is no trace yet that it could be in
        _queued(making, decision, now, said)
    span = making.start_span(
        f"attempt {decision.actor}", under, kind=SpanKind.CONSUMER, attributes=said, start_time=now
    )
    return Open(span, _type_of(decision), decision.trace)


@harmless(NOTHING)
def applying(finished: Sequence[Decision]) -> Traced:
    """The apply of decisions of one process, under the attempt of the last and with links to those of the others."""
    if (making := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import Link, get_current_span

    last = finished[-1]
    if last.effects_trace is None:
        return NOTHING
    others = [
        one.effects_trace for one in finished[:-1] if one.effects_trace is not None and one.effects_trace.is_sampled
    ]
    links = [Link(get_current_span(context_of(one)).get_span_context()) for one in others]
    said = {**_of_task(last), **named({"applied": len(finished)})}
    span = making.start_span(f"apply {last.actor}", context_of(last.effects_trace), attributes=said, links=links)
    return Open(span, _type_of(last))


@harmless(None)
def event(name: str, **attributes: Any) -> None:
    """Something that happened in the span that this thread is in."""
    if tracer() is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().add_event(name, named(attributes))


@harmless(Repairing())
def repairing(decisions: Iterable[Decision], claims: Claims) -> Repairing:
    """Those of these decisions that a span is to tell of, with when the last attempt for each had claimed it. To be
    called when they were just written, and before their messages are pushed, for then others claim them. Where this
    process does not trace it is none, and nothing is asked."""
    if tracer() is None:
        return Repairing()
    found = [one for one in decisions if one.trace is not None]
    lost = [one.id for one in found if one.state is DecisionState.WORKING]
    last = claims(lost) if lost else {}
    return Repairing([one.evolve(claimed_at=last.get(one.id)) for one in found], time.time_ns())


@harmless(None)
def repaired(rule: str, repairing: Repairing, how: str = "requeued") -> None:
    """What was done about these, and by which rule: about an attempt that was lost, whose own process can't tell any
    more; or a message that was."""
    if not repairing.decisions or (making := tracer()) is None:
        return
    for one in repairing.decisions:
        if one.state is DecisionState.WORKING:
            _lost(making, one, rule, how, repairing.at)
        elif one.state is DecisionState.QUEUED:
            _message_lost(making, one, rule)


def _queued(making: Tracer, decision: Decision, until: int, said: dict[str, Any]) -> None:
    """By the database's clock, which wrote both times, but where it ends by ours: so that it does not seem to be after
    the attempt."""
    waited = _nanoseconds(decision.claimed_at) - _nanoseconds(decision.queued_at)
    if decision.queued_at is None or waited <= 0:
        return  # claimed on the spot
    name, under = f"queue {decision.actor}", context_of(decision.trace)
    making.start_span(name, under, attributes=said, start_time=until - waited).end(until)


def _lost(making: Tracer, decision: Decision, rule: str, how: str, now: int) -> None:
    from opentelemetry.trace import SpanKind

    said = {**_of_attempt(decision), **named({"rule": rule, "lost": decision.last_loss, "outcome": "lost"})}
    began = min(_nanoseconds(decision.claimed_at) or now, now)
    name, under = f"attempt {decision.actor}", context_of(decision.trace)
    span = making.start_span(name, under, kind=SpanKind.CONSUMER, attributes=said, start_time=began)
    fails(span, "lost")
    span.add_event(how, timestamp=now)
    span.end(now)


def _message_lost(making: Tracer, decision: Decision, rule: str) -> None:
    said = {**_of_task(decision), **named({"rule": rule, "lost_messages": (decision.losses or 0) + 1})}
    making.start_span(f"requeue {decision.actor}", context_of(decision.trace), attributes=said).end()


def _of_task(decision: Decision) -> dict[str, Any]:
    return named(
        {
            "process_id": decision.process_id,
            "process_type": _type_of(decision),
            "task": decision.task_id,
            "actor": decision.actor,
            "epoch": decision.epoch or None,
            "restarts": decision.restarts,
        }
    )


def _of_attempt(decision: Decision) -> dict[str, Any]:
    return {**_of_task(decision), **named({"attempt": decision.attempts, "worker": decision.worker})}


def _type_of(decision: Decision) -> str | None:
    """The process type, as far as it is known: the actor of a start task has its name."""
    if decision.task_id == ids.START_TASK:
        return decision.actor
    return decision.trace.type if decision.trace is not None else None


def _nanoseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000) * 10**6
