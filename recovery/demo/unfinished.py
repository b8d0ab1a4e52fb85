"""Of a process that has not ended when the time is over: whether it goes on, or is stuck.

It goes on while what lives of it has a deadline that is to come, or that is past for no longer than scanners may take:
somebody looks at it. It is stuck if that is not so, or if nothing of it is queued or worked on and nothing has happened
for longer than the time in which its graph is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from recovery.engine import Resources
from recovery.errors import ProcessNotFound, StoreError
from recovery.health import process_check
from recovery.records import DecisionState, ProcessState
from recovery.rules import Finding, Snapshot
from recovery.settings import Settings

SCANS = 10
"""Scan intervals that a deadline may be past on a busy machine, on top of a heartbeat timeout: so long scanners hold
back after an outage."""
SHOWN = 3
"""Findings that are told."""
MAX_TEXT = 300


def standing(resources: Resources, process_id: str) -> str:
    """'still running' or 'stuck', and why. Ask while there are workers."""
    try:
        examined = process_check.look(resources, process_id)
        now = resources.store.now()
    except ProcessNotFound:
        return "gone: there is no record of it"
    except StoreError as error:
        return f"running, as far as is known: MongoDB could not be asked ({error})"[:MAX_TEXT]
    return judge(examined.snapshot, examined.findings, now, resources.settings)


def judge(snapshot: Snapshot, findings: Sequence[Finding], now: datetime, settings: Settings) -> str:
    """The same of a process as it was read at `now`."""
    if snapshot.process is not None and snapshot.process.state is not ProcessState.RUNNING:
        return f"{snapshot.process.state} since a moment ago"
    allowed = settings.heartbeat_timeout + SCANS * settings.scan_interval
    found = "".join(f"; {finding.rule}: {finding.evidence}" for finding in findings[:SHOWN])
    deadlines = process_check.deadlines(snapshot)
    if not deadlines:
        return f"stuck: nothing of it has a deadline{found}"
    first = deadlines[0]
    overdue = (now - first.at).total_seconds()
    if overdue > allowed:
        return f"stuck: {first.record} ({first.what}) is past its deadline for {overdue:.0f} s{found}"
    quiet = (now - max(_happened(snapshot), default=now)).total_seconds()
    at_work = [decision for decision in snapshot.decisions.values() if decision.recovery_time]
    if not at_work and quiet > settings.idle_timeout + allowed:
        return f"stuck: nothing of it is queued or worked on, and nothing has happened for {quiet:.0f} s{found}"
    done = sum(decision.state is DecisionState.FINISHED for decision in snapshot.decisions.values())
    return (
        f"still running: {done} of {len(snapshot.decisions)} tasks are done, the last thing happened "
        f"{quiet:.1f} s ago, and {first.record} ({first.what}) is looked at in {max(0.0, -overdue):.1f} s{found}"
    )


def _happened(snapshot: Snapshot) -> Iterator[datetime]:
    """When something happened that brings a process on."""
    for decision in snapshot.decisions.values():
        if decision.queued_at:
            yield decision.queued_at
        if decision.outcome and decision.outcome.finished_at:
            yield decision.outcome.finished_at
    if snapshot.process and snapshot.process.started_at:
        yield snapshot.process.started_at
