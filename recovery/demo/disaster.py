"""A disaster: all messages, all graphs, or a tenth of all records is destroyed under live processes; then one operation
of an operator has every process brought to its end.

What nobody can bring back is known by what was destroyed, and not by what recovery says of it. In a demo the start of a
process schedules all of its tasks, and nothing else knows what they were to do. So everything can be made again but
these: a Process record, and the decision of a start that had ended. Whatever else breaks is a defect.

`strike` destroys; `BulkRepair` has the one operation run that repairs, and all who are at it killed in its midst.
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
"""Of the records of every kind, in a mixed disaster."""


@dataclass(slots=True)
class Destroyed:
    """What is gone."""

    what: str = ""
    processes: set[str] = field(default_factory=set)
    """Whose own record is."""
    starts: set[str] = field(default_factory=set)
    """Whose start had ended, and of which that is."""
    decisions: set[tuple[str, str]] = field(default_factory=set)
    """(process, task): what was accepted of it is gone, and it is run again."""

    def unrecoverable(self, run: Run) -> str | None:
        """Why a process could not be brought back, if it could not for what is gone. One whose start is gone may have
        finished before."""
        if run.id in self.processes:
            return "its Process record is gone"
        if run.id in self.starts and run.state is ProcessState.BROKEN:
            return f"what its start scheduled is gone: {run.error or 'it is broken'}"
        return None

    def told_by(
        self, found: Audit, lines: Sequence[Line], unrecoverable: Collection[str], runs: Iterable[Run] = ()
    ) -> Audit:
        """What an audit finds beside what was destroyed. Lost is also what broke, and could have been brought back."""
        names = {(line.process, line.id): COLLECT if line.final else line.task for line in lines}
        gone = {(process, names[process, task]) for process, task in self.decisions if (process, task) in names}

        def beside(places: dict[Place, str]) -> dict[Place, str]:
            return {at: why for at, why in places.items() if at[0] not in unrecoverable and at not in gone}

        lost = {
            (run.id, COLLECT): f"its process is broken, and could be brought back: {run.error}"
            for run in runs
            if run.state is ProcessState.BROKEN and run.id not in unrecoverable
        }
        return Audit(found.executions, lost | beside(found.lost), beside(found.accepted_twice))


def strike(resources: Resources, valkey: Valkey | None, disaster: Disaster, seed: int) -> Destroyed:
    """Destroy it. Raises InputError for a Redis that is not ours."""
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
    gone = resources.store.destruction.remove_some(PART, random.Random(seed))
    counted = ", ".join(f"{len(ids):,} {name}" for name, ids in gone.ids.items())
    starts = {process for process, task in map(split_record_id, gone.finished) if task == START_TASK}
    return Destroyed(
        f"{counted} are gone",
        processes=set(gone.ids["processes"]),
        starts=starts,
        decisions={split_record_id(key) for key in gone.ids["decisions"]},
    )


LOOK_EVERY = 0.2
HALF = 0.5
"""Part of what was found that is repaired when those at it are killed."""
SECONDS_TO_HALF_WAY = 2.0
FEW = 4
"""So few processes are repaired between two looks: those at it are killed as soon as they are seen to have begun."""
WHY = "a disaster in the demo"


@dataclass(frozen=True, slots=True)
class Killed:
    """Where a repair was when all who were at it were killed."""

    phase: str
    done: int
    """Processes that it had done with."""
    of: int


@dataclass(frozen=True, slots=True)
class BulkRepairResult:
    """What came of it."""

    operation: int
    state: str
    killed: Killed | None = None
    problem: str | None = None
    """Why it did not end as it should have; None: it did."""


class BulkRepair:
    """One repair of everything, from its order to its end. `tell` says how it goes on, and `tick` is called meanwhile.
    `kill` is called once, when half of what was found is repaired. `spark`: whether it runs in Spark, or by no means.
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
        self._said = time.monotonic()

    def run(self, until: float) -> BulkRepairResult:
        """Order it and follow it to its end, or until then, by `time.monotonic()`."""
        # Who is to be killed half way applies the plan at a rate that is known when it is complete: there is a midst.
        at_once = self._kill is None
        asked = operations.OperationRequest("repair", everything=True, apply=at_once, spark=self._spark)
        now = operations.start(self._resources, asked, WHY, by="demo")
        self._tell(f"operation {now.id}: repair of every process")
        pause = threading.Event()
        while now.state not in OVER and time.monotonic() < until:
            self._tick()
            if now.state is OperationState.PLANNED and not self._apply(now):
                break
            self._look(now)
            pause.wait(LOOK_EVERY)
            now = operations.find(self._resources, now.id)
        return self._ended(now)

    def _apply(self, planned: Operation) -> bool:
        """Have it applied so slowly that there is a midst; whether there is anything to be done."""
        found = planned.planned.found if planned.planned is not None else 0
        if planned.refusal or not found:
            return False
        operations.set_rate(self._resources, planned.id, max(1.0, found / SECONDS_TO_HALF_WAY / 2), by="demo")
        operations.apply(self._resources, planned.id, WHY, by="demo")
        return True

    def _look(self, now: Operation) -> None:
        far = operations.progress(self._resources, now)
        if self._kill is not None and now.state is OperationState.RUNNING and now.phase is Phase.APPLY:
            self._kill_half_way(self._kill, far)
        if time.monotonic() > self._said + 2.0:
            self._said = time.monotonic()
            speed = f", {far.speed:,.0f} a second" if far.speed else ""
            told = f"operation {now.id} is {now.state}: {far.share:.0%}{speed}, {far.totals.found:,} processes wrong"
            self._tell(told)

    def _kill_half_way(self, kill: Callable[[], None], far: Progress) -> None:
        found = far.expected or 0
        if far.share < HALF and found >= FEW:
            return
        self._killed, self._kill = Killed(far.operation.phase.value, round(far.share * found), found), None
        self._tell(f"operation {far.operation.id}: {self._killed.done:,} of {found:,} processes are repaired")
        kill()
        with suppress(InputError):  # it may just have ended
            operations.set_rate(self._resources, far.operation.id, None, by="demo")

    def _ended(self, now: Operation) -> BulkRepairResult:
        if now.applied is not None:
            repaired = ", ".join(f"{rule} {count:,}" for rule, count in sorted(now.applied.repaired.items()))
            told = f"{now.applied.found:,} processes were wrong; {repaired or 'none'}"
            self._tell(f"operation {now.id} is {now.state}: {told}")
        return BulkRepairResult(now.id, now.state.value, self._killed, self._problem(now))

    def _problem(self, now: Operation) -> str | None:
        if now.state is OperationState.PLANNED and not now.refusal:
            return f"operation {now.id} found nothing to repair, so that nobody was killed half way"
        if now.state is not OperationState.FINISHED:
            return f"operation {now.id} is {now.state}, and the time is over{f': {now.refusal}' if now.refusal else ''}"
        if self._kill is not None:
            return f"operation {now.id} was over before anybody was killed"
        return None
