"""An operation in single lines: its progress, what it comes to, and the answer of a command that changes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from recovery.wording import count, show_age

if TYPE_CHECKING:
    from recovery.operations import Progress
    from recovery.records import Operation, Totals

MANY = 5
"""Rules or process types that a line names."""


def answer(found: Progress) -> str:
    """The state of an operation, what it has come to, and what to do next."""
    operation = found.operation
    parts = [f"operation {operation.id} is {operation.state.value}: {_came_to(found)}", *advice(found)]
    return "; ".join(parts)


def rate_answer(operation: Operation) -> str:
    """The rate of an operation, and when it holds."""
    rate = f"{operation.rate:g} processes a second" if operation.rate else "as many processes as it can"
    when = "" if operation.is_paced else " once it is applied"
    return f"operation {operation.id} goes through {rate}{when}; it is {operation.state.value}"


def progress_line(found: Progress) -> str:
    """How far an operation is in its phase, by processes."""
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
