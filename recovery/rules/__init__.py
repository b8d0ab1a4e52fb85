"""The failure map: pure functions that derive findings from records, queue statistics and the current time.

`judge_decision` judges one decision, `judge_process` a whole process. A finding names its rule, the record, the
evidence and the repair; `recovery.repair` implements the repairs. Scanners, an operator's check and the sweep in Spark
all run these functions. No driver is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.rules.damaged_records import SPOILT, droppable, foreign_id, not_judged, state_shown
    from recovery.rules.derived_graph import graph_of, is_intact, says, still_to_come
    from recovery.rules.failure_map import CATALOGUE, RuleExplanation
    from recovery.rules.findings import Finding, Repair, Rule, Snapshot, Surroundings
    from recovery.rules.process_rules import judge_process, of_aborted
    from recovery.rules.redo_plan import Link, Redo, redo_of
    from recovery.rules.task_rules import OF_SINGLE_TASKS, WORKERS_PER_ATTEMPT, counts_as_loss, judge_decision
    from recovery.rules.times import is_late

__all__ = [
    "CATALOGUE",
    "OF_SINGLE_TASKS",
    "SPOILT",
    "WORKERS_PER_ATTEMPT",
    "Finding",
    "Link",
    "Redo",
    "Repair",
    "Rule",
    "RuleExplanation",
    "Snapshot",
    "Surroundings",
    "counts_as_loss",
    "droppable",
    "foreign_id",
    "graph_of",
    "is_intact",
    "is_late",
    "judge_decision",
    "judge_process",
    "not_judged",
    "of_aborted",
    "redo_of",
    "says",
    "state_shown",
    "still_to_come",
]

__getattr__ = exported(
    __name__,
    {
        "failure_map": "CATALOGUE RuleExplanation",
        "damaged_records": "SPOILT droppable foreign_id not_judged state_shown",
        "task_rules": "OF_SINGLE_TASKS WORKERS_PER_ATTEMPT counts_as_loss judge_decision",
        "derived_graph": "graph_of is_intact says still_to_come",
        "findings": "Finding Repair Rule Snapshot Surroundings",
        "process_rules": "judge_process of_aborted",
        "redo_plan": "Link Redo redo_of",
        "times": "is_late",
    },
)
