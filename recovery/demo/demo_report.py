"""The report of a demo: figures and a verdict.

`unexplained` finds repairs that prove lost records. In a demo without a disaster each of them is a bug.

A demo kills, freezes and interrupts. It deletes and changes no record. It may only lose writes: a primary that steps
down, or is killed or frozen until another is elected, rolls back writes that a majority did not have. By the order of
writes (docs/records.md) this explains some repairs and not others:

- The children of a task, and the graph's entry for them, are written one after the other, acknowledged by the primary
  alone. If the primary changes in between, the new one may have the graph's entry without a record that it names, or,
  at a start, a decision without the graph: CHILDREN_MISSING, TASK_MISSING, DECISION_MISSING, GRAPH_MISSING.
- A finished task is written to its decision with majority write concern, and only then to the graph. A rollback loses
  the graph's entry first, so FINISHED_UNDECIDED is always a bug. So is a graph's link to a missing task, or a cycle,
  because a graph is changed in one write; and so is a live record without a deadline.

Kills of workers, beats or Valkey, and dropped messages, touch no record. An interrupted step leaves later writes
undone, never earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recovery.demo.audit import Audit
from recovery.demo.disaster import BulkRepairResult, Killed
from recovery.demo.drill_comparison import Compared
from recovery.demo.options import FAILOVERS
from recovery.metrics import multiprocess
from recovery.records import ProcessState
from recovery.rules import Rule
from recovery.wfformat.workload import Run

BY_FAILOVER = frozenset({Rule.CHILDREN_MISSING, Rule.TASK_MISSING, Rule.DECISION_MISSING, Rule.GRAPH_MISSING})
"""Rules whose findings a change of the primary can cause."""
BY_NOTHING = frozenset({Rule.FINISHED_UNDECIDED, Rule.DEAD_LINK, Rule.CYCLE, Rule.DEADLINE_MISSING})
"""Rules whose findings nothing in a demo can cause."""


def unexplained(repairs: Mapping[str, int], faults: Mapping[str, int]) -> Iterator[str]:
    """Yield a description of each repair that none of these faults can have caused.

    Args:
        repairs: Repairs by rule.
        faults: Faults by kind.
    """
    failovers = sum(faults.get(kind, 0) for kind in FAILOVERS)
    for rule, count in repairs.items():
        if rule in BY_NOTHING:
            yield f"lost records: {count} repaired as {rule}, which nothing that a demo breaks can cause"
        elif rule in BY_FAILOVER and not failovers:
            yield f"lost records: {count} repaired as {rule}, and MongoDB's primary never changed"


NO_STALE_RESULT = "No attempt returned after another had replaced it: nothing is proved about stale results."
SHOWN = 5
"""Maximum problems that a report names. A bug usually shows the same problem in many places."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The workers' counters, including those of killed workers."""

    requeued: int = 0
    stale_rejected: int = 0
    stale_results: int = 0
    retried: int = 0
    lag_p50: float | None = None
    lag_p99: float | None = None
    repairs: Mapping[str, int] = field(default_factory=dict)
    """{rule: repairs that changed something}."""

    @classmethod
    def read(cls, folder: Path) -> Counts:
        """Add up the metric files of the workers' processes. Each worker has its own folder."""
        samples = multiprocess.collect(*folder.iterdir())
        lag = multiprocess.buckets(samples, "recovery_requeue_lag_seconds")
        return cls(
            requeued=round(multiprocess.total(samples, "recovery_requeues")),
            stale_rejected=round(multiprocess.total(samples, "recovery_stale_results")),
            stale_results=round(multiprocess.totals(samples, "recovery_stale_results", "reason").get("result", 0)),
            retried=round(multiprocess.total(samples, "recovery_retries")),
            lag_p50=multiprocess.quantile(0.5, lag),
            lag_p99=multiprocess.quantile(0.99, lag),
            repairs=dict(sorted(multiprocess.totals(samples, "recovery_repairs", "rule").items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The figures of a demo. `problems` describes everything that was not as promised."""

    processes: int
    finished: int
    """Finished processes, without those whose record was destroyed later."""
    tasks: int
    executions: int
    requeued: int
    stale_rejected: int
    """Stale messages and results that were discarded."""
    stale_results: int
    """Stale results alone: results of attempts that another attempt had replaced."""
    accepted_twice: int
    lost: int
    wall_seconds: float
    lag_p50: float | None
    lag_p99: float | None
    kills: int
    seed: int
    faults: Mapping[str, int]
    """{kind of fault: how often}."""
    repairs: Mapping[str, int]
    """{rule of the failure map: repairs that changed something}."""
    live_without_deadline: int
    """The highest number of live records without a deadline at any look."""
    retried: int = 0
    """Attempts that failed with a transient error and were retried."""
    broken: int = 0
    unrecoverable: Mapping[str, str] = field(default_factory=dict)
    """{process: reason} for processes that nobody can recover after a disaster."""
    killed_half_way: Killed | None = None
    """How far the repair of a disaster was when all its workers were killed."""
    drill: Mapping[str, Any] | None = None
    """Times of the drill at the end, and how many of them were compared with the ledger."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the demo did not bring about, so that it proves nothing about it."""

    @property
    def good(self) -> bool:
        """Whether every process finished, nothing was lost or accepted twice, and every live record had a deadline."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFaults:
    """The faults that a demo caused."""

    seed: int
    """Seed of the random choice of faults."""
    kills: int
    """Number of workers killed."""
    by_kind: Mapping[str, int]
    """Number of faults of each kind."""
    chaos: bool
    """Whether `--chaos` was given, which breaks more than workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisasterOutcome:
    """What became of the processes whose records a disaster destroyed."""

    unrecoverable: Mapping[str, str]
    """For each process that nobody can bring back, the reason."""
    repair: BulkRepairResult | None
    """The operation that repaired the other processes, if it was run."""


def report(
    runs: Sequence[Run],
    found: Audit,
    counts: Counts,
    wall_seconds: float,
    *,
    injected: InjectedFaults,
    live_without_deadline: int,
    disaster: DisasterOutcome | None = None,
    drill: Compared | None = None,
) -> DemoReport:
    """Return the figures and the verdict of a demo. `disaster` and `drill` are None if the demo had none."""
    unrecoverable: Mapping[str, str] = disaster.unrecoverable if disaster is not None else {}
    repair = disaster.repair if disaster is not None else None
    lost_records = unexplained(counts.repairs, injected.by_kind) if disaster is None else ()
    return DemoReport(
        processes=len(runs),
        finished=sum(run.state is ProcessState.FINISHED and run.id not in unrecoverable for run in runs),
        tasks=sum(len(run.workflow.tasks) for run in runs),
        executions=found.executions,
        requeued=counts.requeued,
        stale_rejected=counts.stale_rejected,
        stale_results=counts.stale_results,
        retried=counts.retried,
        accepted_twice=len(found.accepted_twice),
        lost=len(found.lost),
        wall_seconds=round(wall_seconds, 3),
        lag_p50=counts.lag_p50,
        lag_p99=counts.lag_p99,
        kills=injected.kills,
        seed=injected.seed,
        faults=injected.by_kind,
        repairs=counts.repairs,
        live_without_deadline=live_without_deadline,
        broken=sum(run.state is ProcessState.BROKEN for run in runs),
        unrecoverable=unrecoverable,
        killed_half_way=repair.killed if repair is not None else None,
        problems=tuple(
            _problems(
                [run for run in runs if run.id not in unrecoverable],
                found,
                live_without_deadline,
                [
                    *([repair.problem] if repair is not None and repair.problem else []),
                    *lost_records,
                    *(drill.problems if drill is not None else ()),
                ],
            )
        ),
        drill=drill.as_dict() if drill is not None else None,
        notes=(
            *((NO_STALE_RESULT,) if injected.chaos and not counts.stale_results else ()),
            *(drill.notes if drill is not None else ()),
        ),
    )


def _problems(runs: Sequence[Run], findings: Audit, live_without_deadline: int, others: Iterable[str]) -> list[str]:
    problems = [*others]
    problems += [
        f"process {run.id} ({run.workflow.name}) is {_how(run)}"
        for run in runs
        if run.state is not ProcessState.FINISHED
    ]
    for label, places in (("lost", findings.lost), ("accepted twice", findings.accepted_twice)):
        problems += [
            f"{label}: process {process}, {task or 'collect'}: {reason}" for (process, task), reason in places.items()
        ]
    if live_without_deadline:
        problems.append(f"{live_without_deadline} live records had no deadline: no scanner would have found them")
    return problems[:SHOWN] + ([f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else [])


def _how(run: Run) -> str:
    if run.state is ProcessState.RUNNING:
        return run.standing or run.state
    return f"{run.state}: {run.error}" if run.error else run.state
