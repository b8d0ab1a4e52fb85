"""The one operation that repairs what a disaster has destroyed, and the kill of all who are at it in its midst."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from recovery import operations
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.operations import Progress
from recovery.records import Operation, OperationState, Phase
from recovery.records.operation import OVER

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
