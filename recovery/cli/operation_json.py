"""An operation, its progress and its results as JSON has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recovery.search import stored_in_words

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation, OperationResult, Totals

SAMPLE = 10
"""Processes that are shown of a plan; `operation report` has all."""


def as_dict(found: Progress) -> dict[str, Any]:
    """As JSON has it. Times are in UTC, durations in seconds."""
    operation = found.operation
    return {
        "number": operation.id,
        "kind": operation.kind.value,
        "selection": operation.selection,
        "selection_in_words": selection_in_words(operation),
        "from_actor": operation.from_actor,
        "export": operation.export,
        "export_format": operation.export_format.value if operation.export_format is not None else None,
        "idle_timeout": operation.idle_timeout,
        "thorough": bool(operation.thorough),
        "spark": bool(operation.driven),
        "parquet": operation.parquet,
        "state": operation.state.value,
        "phase": operation.phase.value,
        "who": operation.who,
        "why": operation.why,
        "origin": operation.origin,
        "rate": operation.rate,
        "priorities": operation.priorities,
        "asked_at": operation.asked_at,
        "ended_at": operation.ended_at,
        "refusal": operation.refusal,
        "planned": _totals(operation.planned),
        "applied": _totals(operation.applied),
        "sums": [
            {"type": one.type, "rule": one.rule, "actor": one.actor, "count": one.count} for one in operation.sums
        ],
        "progress": {
            "share": round(found.share, 4),
            "expected": found.expected,
            "totals": _totals(found.totals),
            "seconds": round(found.seconds, 3),
            "speed": round(found.speed, 3) if found.speed is not None else None,
            "seconds_left": round(found.seconds_left, 1) if found.seconds_left is not None else None,
            "ranges": found.ranges,
            "ranges_done": found.ranges_done,
            "workers": list(found.workers),
            "errors": list(found.errors),
        },
    }


def selection_in_words(operation: Operation) -> str:
    """Return which processes an operation selects, with dates: its relative times count from its order."""
    return stored_in_words(operation.selection, operation.asked_at or datetime.now(UTC))


def _totals(totals: Totals | None) -> dict[str, Any] | None:
    if totals is None:
        return None
    names = ("processes", "decisions", "found", "done", "nothing", "changed", "errors", "rules", "repaired", "types")
    return {name: getattr(totals, name) for name in names}


def sample(resources: Resources, operation: Operation) -> list[dict[str, Any]]:
    """The first processes of an operation's plan."""
    page = next(resources.store.operation_results.pages(operation.id, size=SAMPLE), [])
    return [result_dict(one) for one in page]


def result_dict(result: OperationResult) -> dict[str, Any]:
    """Return what was found on one process, and what was done to it."""
    return {
        "process": result.process,
        "type": result.type,
        "state": result.state.value,
        "plan": result.plan,
        "rules": result.counts,
        "repaired": result.repaired,
        "before": result.before,
        "after": result.after,
        "error": result.error,
        "at": result.at,
        "ended_at": result.ended_at,
        "findings": [
            {"rule": one.rule, "record": one.record, "actor": one.actor, "evidence": one.evidence}
            for one in result.findings
        ],
    }
