"""Creates the spans, with their attributes (docs/tracing.md).

Attributes hold nothing confidential: no arguments, values or messages of errors. Nothing here raises.
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
"""Returns, for decision ids, when the last attempt of each decision claimed it."""


@dataclass(frozen=True, slots=True)
class Repairing:
    """Decisions as they were before a repair, and the time of the repair in nanoseconds."""

    decisions: Sequence[Decision] = ()
    at: int = 0


@harmless(NOTHING)
def starting(process_type: str) -> Traced:
    """Open the span of a process's start, as a child of the caller's span."""
    if (maker := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import SpanKind

    attributes = named({"process_type": process_type})
    return Open(maker.start_span(f"start {process_type}", kind=SpanKind.PRODUCER, attributes=attributes), process_type)


@harmless(NOTHING)
def attempt(decision: Decision) -> Traced:
    """Open the span of an attempt that was just claimed. Also create the span of its time in the queue."""
    if (maker := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import SpanKind

    parent, now = context_of(decision.trace), time.time_ns()
    attributes = _of_attempt(decision)
    if decision.trace is not None:  # otherwise there is no trace yet for the time in the queue
        _queued(maker, decision, now, attributes)
    span = maker.start_span(
        f"attempt {decision.actor}", parent, kind=SpanKind.CONSUMER, attributes=attributes, start_time=now
    )
    return Open(span, _type_of(decision), decision.trace)


@harmless(NOTHING)
def applying(finished: Sequence[Decision]) -> Traced:
    """Open the span of an apply of one process's decisions: a child of the last decision's attempt, with links to the
    others."""
    if (maker := tracer()) is None:
        return NOTHING
    from opentelemetry.trace import Link, get_current_span

    last = finished[-1]
    if last.effects_trace is None:
        return NOTHING
    other_traces = [
        trace.effects_trace
        for trace in finished[:-1]
        if trace.effects_trace is not None and trace.effects_trace.is_sampled
    ]
    links = [Link(get_current_span(context_of(trace)).get_span_context()) for trace in other_traces]
    attributes = {**_of_task(last), **named({"applied": len(finished)})}
    span = maker.start_span(f"apply {last.actor}", context_of(last.effects_trace), attributes=attributes, links=links)
    return Open(span, _type_of(last))


@harmless(None)
def event(name: str, **attributes: Any) -> None:
    """Add an event to the current span of this thread."""
    if tracer() is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().add_event(name, named(attributes))


@harmless(Repairing())
def repairing(decisions: Iterable[Decision], claims: Claims) -> Repairing:
    """Return the decisions that need a span after a repair, with the time of their last claim.

    Call this after the repair was written and before the messages are pushed: then other workers claim the decisions.
    If this process does not trace, return no decisions without a query.
    """
    if tracer() is None:
        return Repairing()
    traced = [decision for decision in decisions if decision.trace is not None]
    lost_ids = [decision.id for decision in traced if decision.state is DecisionState.WORKING]
    claimed_at = claims(lost_ids) if lost_ids else {}
    return Repairing([decision.evolve(claimed_at=claimed_at.get(decision.id)) for decision in traced], time.time_ns())


@harmless(None)
def repaired(rule: str, repairing: Repairing, how: str = "requeued") -> None:
    """Create the spans of a repair: of lost attempts, whose own processes can't report them, and of lost messages.

    Args:
        rule: The rule that found them.
        repairing: The decisions as they were before the repair.
        how: Name of the event that ends the span of a lost attempt.
    """
    if not repairing.decisions or (maker := tracer()) is None:
        return
    for decision in repairing.decisions:
        if decision.state is DecisionState.WORKING:
            _lost(maker, decision, rule, how, repairing.at)
        elif decision.state is DecisionState.QUEUED:
            _message_lost(maker, decision, rule)


def _queued(maker: Tracer, decision: Decision, end: int, attributes: dict[str, Any]) -> None:
    """Create the span of a decision's time in the queue.

    Its duration is by the database's clock, which wrote both times. Its end is by this machine's clock, so that the
    span does not seem to end after the attempt began.
    """
    waited = _nanoseconds(decision.claimed_at) - _nanoseconds(decision.queued_at)
    if decision.queued_at is None or waited <= 0:
        return  # claimed on the spot
    name, parent = f"queue {decision.actor}", context_of(decision.trace)
    maker.start_span(name, parent, attributes=attributes, start_time=end - waited).end(end)


def _lost(maker: Tracer, decision: Decision, rule: str, how: str, now: int) -> None:
    from opentelemetry.trace import SpanKind

    attributes = {**_of_attempt(decision), **named({"rule": rule, "lost": decision.last_loss, "outcome": "lost"})}
    started = min(_nanoseconds(decision.claimed_at) or now, now)
    name, parent = f"attempt {decision.actor}", context_of(decision.trace)
    span = maker.start_span(name, parent, kind=SpanKind.CONSUMER, attributes=attributes, start_time=started)
    fails(span, "lost")
    span.add_event(how, timestamp=now)
    span.end(now)


def _message_lost(maker: Tracer, decision: Decision, rule: str) -> None:
    attributes = {**_of_task(decision), **named({"rule": rule, "lost_messages": (decision.losses or 0) + 1})}
    maker.start_span(f"requeue {decision.actor}", context_of(decision.trace), attributes=attributes).end()


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
    """Return the process type if it is known: from the start task, whose actor has the same name, or from the trace."""
    if decision.task_id == ids.START_TASK:
        return decision.actor
    return decision.trace.type if decision.trace is not None else None


def _nanoseconds(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000) * 10**6
