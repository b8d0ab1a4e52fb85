"""An operation in single lines, for people, and as JSON, for programs.

The lines are its progress, what it comes to, and the answer of a command that changes it; `follow` prints its progress
until nobody works at it. JSON has the operation, its progress and its results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recovery.cli.output import messages
from recovery.search import stored_in_words
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation, OperationResult, Orders, Totals

MANY = 5
"""Rules or process types that a line names."""


def answer(found: Progress) -> str:
    """Return the state of an operation, what it has come to, and what to do next."""
    operation = found.operation
    parts = [f"operation {operation.id} is {operation.state.value}: {_came_to(found)}", *advice(found)]
    return "; ".join(parts)


def rate_answer(operation: Operation) -> str:
    """Return the rate of an operation, and when it holds."""
    rate = f"{operation.rate:g} processes a second" if operation.rate else "as many processes as it can"
    when = "" if operation.is_paced else " once it is applied"
    return f"operation {operation.id} goes through {rate}{when}; it is {operation.state.value}"


def progress_line(found: Progress) -> str:
    """Return how far an operation is in its phase, counted in processes."""
    operation, totals = found.operation, found.totals
    if operation.phase.value == "apply":
        done = f"{totals.ended:,} of {count(found.expected or 0, 'process')}: {done_text(totals)}"
    else:
        of_all = f" of about {found.expected:,}" if found.expected is not None else ""
        done = plan_text(totals, of_all)
    parts = [f"{found.share:.0%}", done]
    if found.speed:
        parts.append(f"{found.speed:,.0f} a second")
    if found.seconds_left is not None:
        parts.append(f"about {show_age(found.seconds_left)} left")
    return ", ".join(parts)


def advice(found: Progress) -> Iterator[str]:
    """Return what to do with an operation next, or why there is nothing to do."""
    from recovery.operations import why_none

    operation = found.operation
    state = operation.state.value
    if state == "planned" and found.totals.found:
        yield f"nothing has been changed: `recovery operation apply {operation.id}` runs this plan"
    elif operation.planned is not None and not operation.planned.found and state in ("planned", "finished"):
        yield f"nothing is to be done: {why_none(operation)}"
    elif state in ("planning", "running"):
        yield f"`recovery operation watch {operation.id}` follows it"
    elif state == "paused":
        yield f"`recovery operation resume {operation.id}` lets it go on"


def plan_text(totals: Totals, of_all: str = "") -> str:
    """Return what a plan found; `of_all` is how many processes there are."""
    processes = f"{totals.processes:,}{of_all} processes" if of_all else count(totals.processes, "process")
    text = f"{processes} looked at, {totals.found:,} to act on or report"
    if totals.rules:
        text += f" ({_most(totals.rules)})"
    elif totals.types:
        text += f" ({_most(totals.types)})"
    return text


def done_text(totals: Totals, if_none: str = "nothing done yet") -> str:
    """Return what became of the processes of a plan."""
    names = {"done": totals.done, "nothing to do": totals.nothing, "changed since": totals.changed}
    names |= {"failed": totals.errors}
    text = ", ".join(f"{number:,} {name}" for name, number in names.items() if number) or if_none
    return f"{text} ({_most(totals.repaired)})" if totals.repaired else text


def _came_to(found: Progress) -> str:
    operation = found.operation
    if operation.applied is not None:
        return done_text(operation.applied, "nothing done")
    if operation.refusal and operation.state.value == "planned":
        return operation.refusal
    if operation.state.value in ("planned", "finished") and operation.planned is not None:
        return plan_text(operation.planned)
    return progress_line(found)


def _most(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    listed = ", ".join(f"{name} {number:,}" for name, number in ordered[:MANY])
    return f"{listed}, and {count(len(ordered) - MANY, 'other')}" if len(ordered) > MANY else listed


LOOK_EVERY = 0.5
"""Seconds: each look reads some hundred small records, of ranges. Results are counted more rarely."""


def follow(
    resources: Resources, number: int, *, quiet: bool = False, until: Callable[[], bool] = lambda: False
) -> Operation:
    """Follow it until nobody works at it, or `until` says so; as it is then. On a terminal a bar; else a line when much
    has changed."""
    from rich.progress import BarColumn, Progress, TextColumn

    from recovery import operations

    out, watching = messages(), operations.Watching(resources)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[line]}"))
    told = -1.0
    with Progress(*columns, console=out, disable=quiet or not out.is_terminal, transient=True) as bar:
        task = bar.add_task(f"operation {number}", total=1.0, line="")
        while True:
            found = watching.look(operations.find(resources, number))
            bar.update(task, completed=found.share, line=progress_line(found))
            if not quiet and not out.is_terminal and abs(found.share - told) >= 0.1:
                told = found.share
                out.print(f"operation {number}, {found.operation.state.value}: {progress_line(found)}")
            if found.operation.recovery_time is None or until():
                return found.operation
            time.sleep(LOOK_EVERY)


SAMPLE = 10
"""Processes that are shown of a plan; `operation report` has all."""


def as_dict(found: Progress) -> dict[str, Any]:
    """Return an operation as JSON has it. Times are in UTC, durations in seconds."""
    operation = found.operation
    return {
        "number": operation.id,
        **orders_dict(operation),
        "selection_in_words": selection_in_words(operation),
        "spark": bool(operation.driven),
        "state": operation.state.value,
        "phase": operation.phase.value,
        "who": operation.who,
        "why": operation.why,
        "origin": operation.origin,
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


def orders_dict(orders: Orders) -> dict[str, Any]:
    """Return what an operation does as JSON has it."""
    found = orders.what()
    found |= {"kind": orders.kind.value, "thorough": bool(orders.thorough)}
    if orders.export_format is not None:
        found["export_format"] = orders.export_format.value
    return found


def selection_in_words(operation: Operation) -> str:
    """Return which processes an operation selects, with dates: its relative times count from its order."""
    return stored_in_words(operation.selection, operation.asked_at or datetime.now(UTC))


def _totals(totals: Totals | None) -> dict[str, Any] | None:
    if totals is None:
        return None
    names = ("processes", "decisions", "found", "done", "nothing", "changed", "errors", "rules", "repaired", "types")
    return {name: getattr(totals, name) for name in names}


def sample(resources: Resources, operation: Operation) -> list[dict[str, Any]]:
    """Return the first processes of an operation's plan."""
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
