"""Rules on a broken process: what of it can still go on beside what failed, and does not.

The rules are those on a process that runs, but for its own end and deadlines. What they say of a task that the graph
has as failed is not repeated: it is listed, and an operator has it restarted, with all that is lost of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.records import DecisionState
from recovery.records.ids import split_record_id
from recovery.rules import graph_rules, links
from recovery.rules.broken_processes import interruption_missing, is_restarted
from recovery.rules.findings import Finding, Repair, Snapshot, Surroundings
from recovery.rules.times import time_impossible

GO_ON = (
    graph_rules.start_not_registered,
    graph_rules.graph_missing,
    graph_rules.not_applied,
    graph_rules.children_missing,
    graph_rules.record_missing,
    graph_rules.finished_undecided,
    links.dead_link,
    links.cycle,
    graph_rules.ready_not_queued,
)
"""Rules on what goes on, in a process that runs as in one that is broken."""
_OF_A_TASK = frozenset({Repair.APPLY, Repair.BREAK, Repair.ENQUEUE_READY, Repair.RESTORE})


def of_broken(snapshot: Snapshot, around: Surroundings) -> Iterator[Finding]:
    """What is wrong with a broken process, beside what it broke for."""
    for rule in GO_ON:
        yield from (found for found in rule(snapshot, around) if not _is_noted(found, snapshot))
    # Of its own times and its graph's nobody waits for any.
    yield from (found for found in time_impossible(snapshot, around) if found.decision is not None)
    yield from interruption_missing(snapshot, around)


def _is_noted(finding: Finding, snapshot: Snapshot) -> bool:
    """Whether the graph has the task as failed, in the life that its decision is in, if it has one. A start that is
    not registered, of a process that is broken for a task: then tasks were decided, and are lost."""
    process, graph, task = snapshot.process, snapshot.graph, split_record_id(finding.record)[1]
    if finding.repair is Repair.REGISTER_START:
        error = process.error if process is not None else None
        return bool(graph is not None and graph.failed) or (error is not None and error.task is not None)
    if finding.repair not in _OF_A_TASK or graph is None or task not in graph.failed:
        return False
    decision = snapshot.decisions.get(task)
    if decision is None:
        return True
    ended_well = decision.state is DecisionState.FINISHED and not decision.failed
    return not ended_well and not is_restarted(decision, graph)
