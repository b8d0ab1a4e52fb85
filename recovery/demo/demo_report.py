"""What came of a demo, as figures and as a verdict.

`unexplained` finds repairs that are evidence of lost records: in a demo in which nothing
destroyed any, each is a defect.

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


NO_STALE_RESULT = "No attempt came back after another had taken its place: nothing is proved about stale results."
SHOWN = 5
"""Places that a message names; a bug mostly has one cause."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the workers counted, those that were killed included."""

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
        """Add up the files that the workers' processes keep their metrics in, each worker in a folder of its own."""
        found = multiprocess.collect(*folder.iterdir())
        lag = multiprocess.buckets(found, "recovery_requeue_lag_seconds")
        return cls(
            requeued=round(multiprocess.total(found, "recovery_requeues")),
            stale_rejected=round(multiprocess.total(found, "recovery_stale_results")),
            stale_results=round(multiprocess.totals(found, "recovery_stale_results", "reason").get("result", 0)),
            retried=round(multiprocess.total(found, "recovery_retries")),
            lag_p50=multiprocess.quantile(0.5, lag),
            lag_p99=multiprocess.quantile(0.99, lag),
            repairs=dict(sorted(multiprocess.totals(found, "recovery_repairs", "rule").items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The figures of a demo. `problems` says in words what was not as promised; empty: all was."""

    processes: int
    finished: int
    """Without those whose record was destroyed since."""
    tasks: int
    executions: int
    requeued: int
    stale_rejected: int
    """Stale messages and results that were discarded."""
    stale_results: int
    """Of them the results: of attempts that were overtaken by another."""
    accepted_twice: int
    lost: int
    wall_seconds: float
    lag_p50: float | None
    lag_p99: float | None
    kills: int
    seed: int
    faults: Mapping[str, int]
    """{kind: how often}."""
    repairs: Mapping[str, int]
    """{rule of the failure map: repairs that changed something}."""
    live_without_deadline: int
    """The most live records that lacked a deadline at any look."""
    retried: int = 0
    """Attempts that failed for what passes by itself, and were tried again."""
    broken: int = 0
    unrecoverable: Mapping[str, str] = field(default_factory=dict)
    """{process: why}: after a disaster, those that nobody can bring back."""
    killed_half_way: Killed | None = None
    """After a disaster: where its repair was when all who were at it were killed."""
    drill: Mapping[str, Any] | None = None
    """What a drill at the end measured, with how many of its times were held against the ledger."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the run did not bring about, so that nothing is proved about it."""

    @property
    def good(self) -> bool:
        """Whether every process finished, nothing was lost, nothing accepted twice, and everything had a deadline."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    beyond: Mapping[str, str] = disaster.unrecoverable if disaster is not None else {}
    repair = disaster.repair if disaster is not None else None
    lost_records = unexplained(counts.repairs, injected.by_kind) if disaster is None else ()
    return DemoReport(
        processes=len(runs),
        finished=sum(run.state is ProcessState.FINISHED and run.id not in beyond for run in runs),
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
        unrecoverable=beyond,
        killed_half_way=repair.killed if repair is not None else None,
        problems=tuple(
            _problems(
                [run for run in runs if run.id not in beyond],
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


def _problems(runs: Sequence[Run], found: Audit, live_without_deadline: int, others: Iterable[str]) -> list[str]:
    problems = [*others]
    problems += [
        f"process {run.id} ({run.workflow.name}) is {_how(run)}"
        for run in runs
        if run.state is not ProcessState.FINISHED
    ]
    for what, places in (("lost", found.lost), ("accepted twice", found.accepted_twice)):
        problems += [
            f"{what}: process {process}, {task or 'collect'}: {why}" for (process, task), why in places.items()
        ]
    if live_without_deadline:
        problems.append(f"{live_without_deadline} live records had no deadline: nobody would have looked at them")
    return problems[:SHOWN] + ([f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else [])


def _how(run: Run) -> str:
    if run.state is ProcessState.RUNNING:
        return run.standing or run.state
    return f"{run.state}: {run.error}" if run.error else run.state
