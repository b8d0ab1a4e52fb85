"""Disasters: all messages, all graphs, or a tenth of all records are destroyed under live processes. Then one repair
operation brings every process to its end.

Which processes can't be recovered is derived from what was destroyed, and not from what the library says. In the demo,
the start of a process schedules all of its tasks, and nothing else contains their arguments. So everything can be
restored except a Process record, and the decision of a start that had ended. If anything else breaks, the library has a
bug.

`strike` destroys. `BulkRepair` runs the repair operation, and may kill all its workers in the middle.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recovery import operations
from recovery.demo.audit import COLLECT, Audit, Place
from recovery.demo.ledger import Line
from recovery.demo.options import Disaster
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import Progress
from recovery.records import Operation, OperationState, Phase, ProcessState
from recovery.records.ids import START_TASK, split_record_id
from recovery.records.operation import OVER
from recovery.stack import Valkey
from recovery.wfformat.workload import Run

PART = 0.1
"""Fraction of the records of every kind that a mixed disaster destroys."""


@dataclass(slots=True)
class Destroyed:
    """Records that a disaster destroyed."""

    what: str = ""
    processes: set[str] = field(default_factory=set)
    """Processes whose Process record is gone."""
    starts: set[str] = field(default_factory=set)
    """Processes whose start had ended, and lost its decision."""
    decisions: set[tuple[str, str]] = field(default_factory=set)
    """(process, task) of lost decisions. Their accepted results are lost too, and the tasks run again."""

    def unrecoverable(self, run: Run) -> str | None:
        """Return why a process can't be recovered, or None if it can. A process that lost its start may have finished
        before."""
        if run.id in self.processes:
            return "its Process record is gone"
        if run.id in self.starts and run.state is ProcessState.BROKEN:
            return f"what its start scheduled is gone: {run.error or 'it is broken'}"
        return None

    def told_by(
        self, found: Audit, lines: Sequence[Line], unrecoverable: Collection[str], runs: Iterable[Run] = ()
    ) -> Audit:
        """Return an audit without the effects of the destruction. A process that broke although it could be recovered
        counts as lost."""
        names = {(line.process, line.id): COLLECT if line.final else line.task for line in lines}
        destroyed_places = {
            (process, names[process, task]) for process, task in self.decisions if (process, task) in names
        }

        def without_destroyed(places: dict[Place, str]) -> dict[Place, str]:
            return {
                place: reason
                for place, reason in places.items()
                if place[0] not in unrecoverable and place not in destroyed_places
            }

        lost = {
            (run.id, COLLECT): f"its process is broken, and could be brought back: {run.error}"
            for run in runs
            if run.state is ProcessState.BROKEN and run.id not in unrecoverable
        }
        return Audit(found.executions, lost | without_destroyed(found.lost), without_destroyed(found.accepted_twice))


def strike(resources: Resources, valkey: Valkey | None, disaster: Disaster, seed: int) -> Destroyed:
    """Destroy records or messages, and return what was destroyed. Raises InputError if Redis is not the demo's own."""
    if disaster is Disaster.REDIS:
        if valkey is None:
            raise InputError(
                "--disaster redis: RECOVERY_BROKER_URL names a Redis that is not ours to destroy; unset it"
            )
        valkey.kill()
        valkey.lose_data()
        valkey.start()
        return Destroyed("all of Redis is gone")
    if disaster is Disaster.GRAPH:
        return Destroyed(f"all {resources.store.destruction.drop_graphs():,} graphs are gone")
    removed = resources.store.destruction.remove_some(PART, random.Random(seed))
    counted = ", ".join(f"{len(ids):,} {name}" for name, ids in removed.ids.items())
    starts = {process for process, task in map(split_record_id, removed.finished) if task == START_TASK}
    return Destroyed(
        f"{counted} are gone",
        processes=set(removed.ids["processes"]),
        starts=starts,
        decisions={split_record_id(key) for key in removed.ids["decisions"]},
    )


LOOK_EVERY = 0.2
HALF = 0.5
"""Fraction of the findings that is repaired before the workers are killed."""
SECONDS_TO_HALF_WAY = 2.0
FEW = 4
"""Minimum processes to repair for a kill half way. With fewer, workers are killed as soon as the repair has begun."""
WHY = "a disaster in the demo"


@dataclass(frozen=True, slots=True)
class Killed:
    """How far a repair was when all its workers were killed."""

    phase: str
    done: int
    """Processes that were done."""
    of: int


@dataclass(frozen=True, slots=True)
class BulkRepairResult:
    """The result of a repair."""

    operation: int
    state: str
    killed: Killed | None = None
    problem: str | None = None
    """Why the repair did not end as expected. None if it did."""


class BulkRepair:
    """A repair of all processes, from its order to its end.

    `tell` is called with progress messages, and `tick` while the repair runs. `kill` is called once, when half of the
    findings are repaired. `spark` says whether the repair runs in Spark.
    """

    def __init__(
        self,
        resources: Resources,
        tell: Callable[[str], None],
        tick: Callable[[], None],
        kill: Callable[[], None] | None = None,
        *,
        spark: bool = False,
    ) -> None:
        self._resources, self._tell, self._tick, self._kill, self._spark = resources, tell, tick, kill, spark
        self._killed: Killed | None = None
        self._told_at = time.monotonic()

    def run(self, until: float) -> BulkRepairResult:
        """Order the repair, and follow it until it ends or `time.monotonic()` reaches `until`."""
        # With a kill, the plan is applied at a rate that is chosen when the plan is complete. Otherwise the repair
        # might end before the kill.
        at_once = self._kill is None
        request = operations.OperationRequest("repair", everything=True, apply=at_once, spark=self._spark)
        operation = operations.start(self._resources, request, WHY, by="demo")
        self._tell(f"operation {operation.id}: repair of every process")
        pause = threading.Event()
        while operation.state not in OVER and time.monotonic() < until:
            self._tick()
            if operation.state is OperationState.PLANNED and not self._apply(operation):
                break
            self._look(operation)
            pause.wait(LOOK_EVERY)
            operation = operations.find(self._resources, operation.id)
        return self._ended(operation)

    def _apply(self, planned: Operation) -> bool:
        """Apply the plan, slowly enough for the kill. Return whether it has anything to do."""
        process_count = planned.planned.found if planned.planned is not None else 0
        if planned.refusal or not process_count:
            return False
        operations.set_rate(self._resources, planned.id, max(1.0, process_count / SECONDS_TO_HALF_WAY / 2), by="demo")
        operations.apply(self._resources, planned.id, WHY, by="demo")
        return True

    def _look(self, operation: Operation) -> None:
        progress = operations.progress(self._resources, operation)
        if self._kill is not None and operation.state is OperationState.RUNNING and operation.phase is Phase.APPLY:
            self._kill_half_way(self._kill, progress)
        if time.monotonic() > self._told_at + 2.0:
            self._told_at = time.monotonic()
            speed = f", {progress.speed:,.0f} a second" if progress.speed else ""
            message = (
                f"operation {operation.id} is {operation.state}: {progress.share:.0%}{speed}, "
                f"{progress.totals.found:,} processes wrong"
            )
            self._tell(message)

    def _kill_half_way(self, kill: Callable[[], None], progress: Progress) -> None:
        process_count = progress.expected or 0
        if progress.share < HALF and process_count >= FEW:
            return
        self._killed, self._kill = (
            Killed(progress.operation.phase.value, round(progress.share * process_count), process_count),
            None,
        )
        self._tell(
            f"operation {progress.operation.id}: {self._killed.done:,} of {process_count:,} processes are repaired"
        )
        kill()
        with suppress(InputError):  # the operation may just have ended
            operations.set_rate(self._resources, progress.operation.id, None, by="demo")

    def _ended(self, operation: Operation) -> BulkRepairResult:
        if operation.applied is not None:
            repaired = ", ".join(f"{rule} {count:,}" for rule, count in sorted(operation.applied.repaired.items()))
            outcome = f"{operation.applied.found:,} processes were wrong; {repaired or 'none'}"
            self._tell(f"operation {operation.id} is {operation.state}: {outcome}")
        return BulkRepairResult(operation.id, operation.state.value, self._killed, self._problem(operation))

    def _problem(self, operation: Operation) -> str | None:
        if operation.state is OperationState.PLANNED and not operation.refusal:
            return f"operation {operation.id} found nothing to repair, so no worker was killed half way"
        if operation.state is not OperationState.FINISHED:
            return (
                f"operation {operation.id} is {operation.state}, and the time has run out"
                f"{f': {operation.refusal}' if operation.refusal else ''}"
            )
        if self._kill is not None:
            return f"operation {operation.id} ended before any worker was killed"
        return None
