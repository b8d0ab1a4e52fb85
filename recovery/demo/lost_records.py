"""Repairs that are evidence of lost records: in a demo in which nothing destroyed any, each is a defect.

A demo kills, freezes and cuts off; it deletes no record and changes none. What it may destroy are writes: a primary
that steps down, or is killed or frozen until another is elected, takes back what a majority did not have. By the order
of writes (docs/records.md) that explains some repairs and not others:

- The children of a task and the graph's word for them are written one after the other, by the primary's word alone.
  If the primary changes in between, the new one may have the graph's word without a record that it names, or, at a
  start, a decision without the graph: CHILDREN_MISSING, TASK_MISSING, DECISION_MISSING, GRAPH_MISSING.
- That a task is finished is written to its decision with majority, and only then to the graph. Whatever is taken back,
  it is the graph's word that goes first: FINISHED_UNDECIDED has no innocent cause. Neither has a link of a graph to
  nowhere, or a circle, since a graph is changed in one write; nor a live record without a deadline.

No kill of a worker, a beat or Valkey, and no message that is dropped, touches a record: a step that was cut off has
left undone what comes later, never what comes before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recovery.demo.kinds import FAILOVERS
from recovery.rules import Rule

BY_FAILOVER = frozenset({Rule.CHILDREN_MISSING, Rule.TASK_MISSING, Rule.DECISION_MISSING, Rule.GRAPH_MISSING})
"""Of what a change of the primary takes back."""
BY_NOTHING = frozenset({Rule.FINISHED_UNDECIDED, Rule.DEAD_LINK, Rule.CYCLE, Rule.DEADLINE_MISSING})
"""Of nothing that a demo does."""


def unexplained(repairs: Mapping[str, int], faults: Mapping[str, int]) -> Iterator[str]:
    """In words, each repair among {rule: how many} that none of {kind of fault: how many} can have caused."""
    failovers = sum(faults.get(kind, 0) for kind in FAILOVERS)
    for rule, count in repairs.items():
        if rule in BY_NOTHING:
            yield f"lost records: {count} repaired as {rule}, which nothing that a demo breaks can cause"
        elif rule in BY_FAILOVER and not failovers:
            yield f"lost records: {count} repaired as {rule}, and MongoDB's primary never changed"
