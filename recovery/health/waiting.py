"""What waits for nobody, in words: the same for all who tell it: `doctor`, `status`, `show`, `check`, `start`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from recovery.records import Decision, DecisionState, ProcessState
from recovery.rules import Finding, Repair, Rule, Snapshot
from recovery.store import ActorQueue

_NOT_TAKEN = frozenset({Rule.NO_ACTORS, Rule.SERVERS_WERE_DOWN})


def why(queue: ActorQueue | None) -> str | None:
    """What the queued tasks of an actor wait for, if no worker will take them."""
    if queue is None:
        return None
    if queue.waits_for_operator:
        return f"waits for `recovery actor unblock {queue.actor}`: blocked for {seconds(queue.blocked_seconds)}"
    if queue.waits_for_nobody:
        return f"waits for a worker that serves {queue.actor}: none does"
    return None


def reasons(queues: Mapping[str, ActorQueue]) -> dict[str, str]:
    """{actor: what its queued tasks wait for}, of those that no worker will take."""
    return {name: reason for name, queue in queues.items() if (reason := why(queue))}


def advice(queues: Sequence[ActorQueue]) -> str:
    """What to do about actors, one at least, that no worker serves and tasks wait for, while workers live."""
    name = queues[0].actor if len(queues) == 1 else "NAME"
    if all(queue.is_known for queue in queues):
        start = f"start a worker that serves {name}"
    else:
        start = "restart the workers with the code that has it: they take up new actors at their start only"
    return (
        f'{start}. If the function was renamed or removed: give it the old name, `@app.actor("{name}")`, or abort what '
        f"waits for it, `recovery broken abort --waiting-for {name}`"
    )


def findings(snapshot: Snapshot, found: Sequence[Finding], queues: Mapping[str, ActorQueue]) -> list[Finding]:
    """What was found on a process, and with it what it waits for that no worker will take, past its deadline or not:
    one finding for each actor, in place of those of single tasks that say the same."""
    repaired = {finding.record for finding in found if finding.rule not in _NOT_TAKEN}
    waiting: dict[str, list[Decision]] = defaultdict(list)
    for decision in snapshot.decisions.values():
        if decision.state is DecisionState.QUEUED and decision.id not in repaired and why(queues.get(decision.actor)):
            waiting[decision.actor].append(decision)
    told = {decision.id for decisions in waiting.values() for decision in decisions}
    all_found = [finding for finding in found if finding.record not in told]
    served = any(queue.is_served for queue in queues.values())
    all_found += _not_taken(waiting, queues, Rule.NO_ACTORS if served else Rule.SERVERS_WERE_DOWN)
    process = snapshot.process
    if process is not None and process.state is ProcessState.RUNNING and not all_found and not served:
        evidence = "no worker that lives serves an actor: nothing of it goes on"
        all_found.append(Finding(Rule.SERVERS_WERE_DOWN, process.id, Repair.WAIT, evidence))
    return all_found


def _not_taken(
    waiting: Mapping[str, Sequence[Decision]], queues: Mapping[str, ActorQueue], rule: Rule
) -> Iterator[Finding]:
    for actor, decisions in waiting.items():
        first = min(decisions, key=lambda decision: decision.id)
        many = f"{len(decisions):,} tasks, each " if len(decisions) > 1 else ""
        yield Finding(rule, first.id, Repair.WAIT, f"{many}queued, {why(queues[actor])}", first)


def seconds(number: float | None) -> str:
    """A time span."""
    return f"{number or 0.0:,.0f} s"
