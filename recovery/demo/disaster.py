"""A disaster: all messages, all graphs, or a tenth of all records is destroyed under live processes; then one operation
of an operator has every process brought to its end.

What nobody can bring back is told exactly: processes that lost records and break for it, or whose own record is gone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recovery import operations
from recovery.demo.audit import COLLECT, Audit, Place
from recovery.demo.kinds import Disaster
from recovery.demo.ledger import Line
from recovery.demo.workload import Run
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.records import ProcessState
from recovery.records.ids import split_record_id
from recovery.records.operation import OVER
from recovery.stack import Valkey

PART = 0.1
"""Of the records of every kind, in a mixed disaster."""
LOOK_EVERY = 0.2
HALF = 0.4
"""Part of the work, or of its plan, that is done when those at it are killed."""
SECONDS_TO_HALF_WAY = 2.0
WHY = "a disaster in the demo"


@dataclass(slots=True)
class Destroyed:
    """What is gone."""

    what: str = ""
    processes: set[str] = field(default_factory=set)
    """Whose own record is."""
    harmed: set[str] = field(default_factory=set)
    """Of which a record is."""
    decisions: set[tuple[str, str]] = field(default_factory=set)
    """(process, task): what was accepted of it is gone, and it is run again."""

    def unrecoverable(self, run: Run) -> str | None:
        """Why a process can't be brought back, if it can't for what is gone."""
        if run.id in self.processes:
            return "its Process record is gone"
        if run.state is ProcessState.BROKEN and run.id in self.harmed:
            return run.error or "it is broken"
        return None

    def told_by(self, found: Audit, lines: Sequence[Line], unrecoverable: Collection[str]) -> Audit:
        """What an audit finds beside what was destroyed."""
        names = {(line.process, line.id): COLLECT if line.final else line.task for line in lines}
        gone = {(process, names[process, task]) for process, task in self.decisions if (process, task) in names}

        def beside(places: dict[Place, str]) -> dict[Place, str]:
            return {at: why for at, why in places.items() if at[0] not in unrecoverable and at not in gone}

        return Audit(found.executions, beside(found.lost), beside(found.accepted_twice))


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
    counted = ", ".join(f"{len(ids):,} {name}" for name, ids in gone.items())
    return Destroyed(
        f"{counted} are gone",
        processes=set(gone["processes"]),
        harmed={split_record_id(key)[0] for ids in gone.values() for key in ids},
        decisions={split_record_id(key) for key in gone["decisions"]},
    )


def repair_all(
    resources: Resources,
    processes: int,
    tell: Callable[[str], None],
    tick: Callable[[], None],
    half_way: Callable[[], None] | None,
    *,
    spark: bool,
) -> None:
    """Order one repair of everything, and follow it until it is over. `half_way` is called once, in the midst of it; it
    may kill whoever is at it. `spark`: whether it runs in Spark, or by no means."""
    # So slow at first that there is a midst.
    rate = max(1.0, processes / SECONDS_TO_HALF_WAY / 2) if half_way is not None else None
    asked = operations.Asked("repair", everything=True, apply=True, rate=rate, spark=spark)
    ordered = operations.start(resources, asked, WHY, by="demo")
    tell(f"operation {ordered.id}: repair of every process")
    pause, said = threading.Event(), time.monotonic()
    while (now := operations.find(resources, ordered.id)).state not in OVER:
        tick()
        if half_way is not None and operations.progress(resources, now).share >= HALF:
            half_way()
            half_way = None
            with suppress(InputError):  # it may just have ended
                operations.set_rate(resources, ordered.id, None)
        if time.monotonic() > said + 2.0:
            said = time.monotonic()
            far = operations.progress(resources, now)
            speed = f", {far.speed:,.0f} a second" if far.speed else ""
            tell(f"operation {now.id} is {now.state}: {far.share:.0%}{speed}, {far.totals.found:,} processes wrong")
        pause.wait(LOOK_EVERY)
    if now.applied is not None:
        repaired = ", ".join(f"{rule} {count:,}" for rule, count in sorted(now.applied.repaired.items()))
        tell(f"operation {now.id} is {now.state}: {now.applied.found:,} processes were wrong; {repaired or 'none'}")
