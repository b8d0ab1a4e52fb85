"""`recovery doctor` and `recovery check`: is the cluster well, and is one process?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import BAD, ERROR, Commands, JsonOption, ProcessId, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.interrupted import without_rule
from recovery.cli.output import Labelled, console, line, print_json, seconds_between
from recovery.errors import InputError
from recovery.settings import load
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.health import Check, Deadline, Examination
    from recovery.rules import Finding, Snapshot

DOCTOR = """Check the cluster: servers, clocks, packages, collections, workers, queues, beat, scanners and deadlines.

Each line is OK, WARNING, UNKNOWN or PROBLEM, with what to do. Nothing of yours is written. Ends with 0 if there is no
problem and no broken process, 1 if there is one, 2 if a server does not answer: then what it would tell is not known,
and these checks are one line. With --json each has a [italic]cause[/italic], a code that does not change:
docs/causes.md explains them.

Example: [bold]recovery doctor --json[/bold]
"""

LABEL = 21
STYLES = {"OK": "green", "WARNING": "yellow", "UNKNOWN": "yellow", "PROBLEM": "bold red"}

commands = Commands()


@commands.add(DOCTOR)
def doctor(json: JsonOption = False) -> None:
    from recovery.engine import Resources
    from recovery.health import examine
    from recovery.health.doctor import SERVERS
    from recovery.health.model import Cause, is_bad, worst

    out = console()
    checks: list[Check] = []
    for check in examine(Resources.connect(load())):
        checks.append(check)
        if not json and check.cause is not Cause.NOT_ASKED:
            out.print(_lines(check))
    if not json and (missing := [check for check in checks if check.cause is Cause.NOT_ASKED]):
        out.print(_lines(_in_one(missing)))
    if json:
        print_json("doctor", {"level": worst(checks), "checks": [_check_dict(check) for check in checks]})
    if any(check.name in SERVERS and not check.asked for check in checks):
        raise typer.Exit(ERROR)
    raise typer.Exit(BAD if is_bad(checks) else 0)


def _in_one(checks: Sequence[Check]) -> Check:
    """Return one check for all that were not asked, because other lines tell the reason."""
    from dataclasses import replace

    names, why = ", ".join(check.name for check in checks), "; ".join(dict.fromkeys(check.found for check in checks))
    return replace(checks[0], name="not asked", found=f"{names} ({why})", advice="see the problems above")


def _lines(check: Check) -> Labelled:
    style = STYLES[check.level]
    rows = [(line((f"{check.level:<8}", style), (f"{check.name:<13}", "bold")), line(check.found))]
    if check.advice:
        rows.append((line(" " * LABEL), line((f"→ {check.advice}", style))))
    return Labelled(rows, LABEL)


def _check_dict(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "level": check.level,
        "cause": check.cause,
        "found": check.found,
        "advice": check.advice,
        "asked": check.asked,
    }


CHECK = """Judge one process by the rules that the scanners use, whether its deadlines are past or not.

Shows its records, what is open, and each finding with its evidence and the repair that is due. With --repair that is
done at once and the process is judged again. A healthy process is shown with its next deadlines. What is missing
counts once nothing has changed in the process for RECOVERY_APPLY_TIMEOUT (5 s). Ends with 0 if it is healthy or was
repaired, or is broken and nothing else is wrong with it; 1 if a finding is left.

Example: [bold]recovery check 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d --repair[/bold]
"""

MAX_LINES = 20
"""Open tasks and deadlines that are shown; --json has all."""


@commands.add(CHECK)
def check(
    process_id: ProcessId,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is found, then judge again.")] = False,
    reason: ReasonOption = "",
    json: JsonOption = False,
) -> None:
    from recovery import health
    from recovery.engine.lookup import resolve

    if reason and not repair:
        raise InputError("--reason goes with --repair: without it nothing is changed, and nothing recorded")
    resources = connect()
    examined = first = health.look(resources, resolve(resources, process_id))
    repaired: dict[str, int] | None = None
    if repair:
        done, examined = health.repair(resources, first, reason)
        repaired = {str(rule): count for rule, count in done.items()}
    coming = health.deadlines(examined.snapshot)
    if json:
        print_json("check", _as_dict(first, examined, repaired, coming))
    else:
        _show(console(), first, examined, repaired, coming)
    raise typer.Exit(BAD if examined.findings else 0)


def _show(
    out: Console,
    first: Examination,
    last: Examination,
    repaired: dict[str, int] | None,
    coming: Sequence[Deadline],
) -> None:
    from recovery.records import ProcessState

    for text in _summary(first.snapshot, first.around.now):
        out.print(text)
    _print_findings(out, "found", first.findings)
    if repaired is not None and first.findings:
        done = ", ".join(f"{rule} {number}" for rule, number in repaired.items()) or "nothing"
        out.print(f"repaired   {done}", style="green" if repaired else "yellow")
        _print_findings(out, "left", last.findings)
    if last.findings:
        return
    process = last.snapshot.process
    if process is not None and process.state is ProcessState.BROKEN:
        why = f"{process.error.kind}: {without_rule(process.error.message)}" if process.error else "without an error"
        out.print(f"broken     {why}", style="red")
        out.print(
            f"  nothing else is wrong with it; `recovery broken show {process.id}` tells what can be done",
            style="dim",
        )
    else:
        out.print("healthy", style="green")
    for one in coming[:MAX_LINES]:
        line = f"  {_when(one.at, last.around.now):<18}{one.scanner + ' scanner':<19}{one.record}  {one.what}"
        out.print(line)
    if len(coming) > MAX_LINES:
        out.print(f"  and {len(coming) - MAX_LINES} more, later", style="dim")
    if not coming:
        out.print("  no record has a deadline: nothing is left to be done", style="dim")


def _summary(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    process, graph = snapshot.process, snapshot.graph
    if process is None:
        is_damaged = any(one.record == snapshot.process_id and one.kind == "Process" for one in snapshot.damaged)
        yield f"{snapshot.process_id}  {'its record is damaged' if is_damaged else 'has no Process record'}"
    else:
        lasted = show_age(seconds_between(process.started_at, process.ended_at or now))
        yield f"{process.id}  {process.type}  {process.state}, {'took' if process.ended_at else 'for'} {lasted}"
    states = ", ".join(f"{number:,} {state}" for state, number in _states(snapshot).items()) or "no decision"
    yield f"records    {count(len(snapshot.tasks), 'task')} ({states}); {'a' if graph else 'no'} graph"
    open_tasks = _open(snapshot)
    for place, task in enumerate(open_tasks[:MAX_LINES]):
        waits = f", waits for {task['waits_for']}" if task["waits_for"] else ""
        yield f"{'' if place else 'open':<11}{task['task']}  {task['actor']}  {task['state']}{waits}"
    if len(open_tasks) > MAX_LINES:
        yield f"{'':<11}and {len(open_tasks) - MAX_LINES:,} more"


def _print_findings(out: Console, what: str, findings: Sequence[Finding]) -> None:
    for place, finding in enumerate(findings):
        line = f"{'' if place else what:<11}{finding.rule}  {finding.record}  {finding.evidence} → {finding.repair}"
        out.print(line, style="yellow")


def _as_dict(
    first: Examination, last: Examination, repaired: dict[str, int] | None, coming: Sequence[Deadline]
) -> dict[str, Any]:
    """Return what was found, as JSON has it. Times are ISO 8601 in UTC. `repaired` is null if nobody asked for it."""
    process, graph = last.snapshot.process, last.snapshot.graph
    return {
        "process": last.snapshot.process_id,
        "type": process.type if process else None,
        "state": process.state if process else None,
        "error": process.error.message if process and process.error else None,
        "tasks": len(last.snapshot.tasks),
        "decisions": _states(last.snapshot),
        "graph": graph is not None,
        "open": _open(last.snapshot),
        "findings": [_finding(finding) for finding in first.findings],
        "repaired": repaired,
        "left": [_finding(finding) for finding in last.findings],
        "healthy": not last.findings,
        "deadlines": [
            {"record": one.record, "what": one.what, "at": one.at.isoformat(), "scanner": one.scanner} for one in coming
        ],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule,
        "record": finding.record,
        "evidence": finding.evidence,
        "repair": finding.repair,
    }


def _states(snapshot: Snapshot) -> dict[str, int]:
    return dict(Counter(str(decision.state) for decision in snapshot.decisions.values()))


def _open(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the tasks that the graph has as open, with those first that wait for nothing."""
    if snapshot.graph is None:
        return []
    found = []
    for task in snapshot.graph.not_finished:
        decision = snapshot.decisions.get(task)
        state = "failed" if task in snapshot.graph.failed else decision.state if decision else "no decision"
        waits = len(snapshot.graph.links.get(task, {}))
        found.append({"task": task, "actor": decision.actor if decision else "?", "state": state, "waits_for": waits})
    return sorted(found, key=lambda one: one["waits_for"])


def _when(at: datetime, now: datetime) -> str:
    seconds = (at - now).total_seconds()
    return f"in {show_age(seconds)}" if seconds > 0 else f"due for {show_age(-seconds)}"
