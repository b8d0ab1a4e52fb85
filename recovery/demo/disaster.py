"""A disaster: all messages, all graphs, or a tenth of all records is destroyed under live processes; then one operation
of an operator has every process brought to its end.

What nobody can bring back is known by what was destroyed, and not by what recovery says of it. In a demo the start of a
process schedules all of its tasks, and nothing else knows what they were to do. So everything can be made again but
these: a Process record, and the decision of a start that had ended. Whatever else breaks is a defect.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from recovery.demo.audit import COLLECT, Audit, Place
from recovery.demo.kinds import Disaster
from recovery.demo.ledger import Line
from recovery.demo.workload import Run
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.records import ProcessState
from recovery.records.ids import START_TASK, split_record_id
from recovery.stack import Valkey

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
