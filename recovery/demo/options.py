"""Options of a demo, checked. Also the kinds of faults and disasters, how long each fault lasts, and the seeded choice
of what breaks when, by which a demo can be repeated."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from recovery.errors import InputError
from recovery.sweep import java
from recovery.wfformat import Workflow, example_path, load
from recovery.wfformat.workload import check_load

T = TypeVar("T")


class FaultKind(StrEnum):
    """The kinds of faults."""

    WORKER_KILLED = "worker_killed"
    POOL_PROCESS_KILLED = "pool_process_killed"
    WORKER_FROZEN = "worker_frozen"
    BEAT_KILLED = "beat_killed"
    SECOND_BEAT = "second_beat"
    PRIMARY_KILLED = "primary_killed"
    PRIMARY_STEPPED_DOWN = "primary_stepped_down"
    PRIMARY_FROZEN = "primary_frozen"
    PRIMARY_LOST = "primary_lost"
    """Replication stops, and then the primary dies. Its writes in between are lost."""
    MONGODB_AWAY = "mongodb_away"
    """All members are down, for longer than any call waits."""
    VALKEY_KILLED = "valkey_killed"
    VALKEY_LOST = "valkey_lost"
    MESSAGES_DROPPED = "messages_dropped"


LASTS: Mapping[FaultKind, float] = {
    # Maximum. It ends earlier if others have finished the worker's tasks, so that its results are stale.
    FaultKind.WORKER_FROZEN: 20.0,
    FaultKind.BEAT_KILLED: 3.0,
    FaultKind.SECOND_BEAT: 3.0,
    # Longer than an election, so that for a moment there are two primaries.
    FaultKind.PRIMARY_KILLED: 5.0,
    FaultKind.PRIMARY_FROZEN: 6.0,
    FaultKind.PRIMARY_LOST: 5.0,
    FaultKind.MONGODB_AWAY: 20.0,
    FaultKind.VALKEY_KILLED: 2.0,
    FaultKind.VALKEY_LOST: 2.0,
}
"""Seconds until a fault is repaired. Other faults are repaired at once."""

FAILOVERS = frozenset(
    {
        *(FaultKind.PRIMARY_KILLED, FaultKind.PRIMARY_STEPPED_DOWN, FaultKind.PRIMARY_FROZEN, FaultKind.PRIMARY_LOST),
        # All members lose what they had not written to their journals.
        FaultKind.MONGODB_AWAY,
    }
)
"""Faults after which MongoDB may roll back writes that a majority did not have."""


class Disaster(StrEnum):
    """What a disaster destroys."""

    REDIS = "redis"
    """Every message, and everything else in Redis."""
    GRAPH = "graph"
    """The whole collection of graphs."""
    MIXED = "mixed"
    """A random tenth of the records of every kind."""


MAX_WORKERS = 100
KINDS = [kind.value for kind in FaultKind]
LARGEST_PART = 0.9
"""Maximum fraction of failing attempts. With more failures a demo would not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a demo. Raises InputError, which names the option, for an invalid value."""

    files: Sequence[Path] = ()
    """WfFormat files, taken in turn. If empty: the example in the package."""
    processes: int = 20
    workers: int = 2
    kill_every: float = 2.0
    """Seconds between kills. 0: no kills. With `chaos`: seconds between the end of a fault and the next one."""
    chaos: bool = False
    """Whether other things are broken, too, and not only workers."""
    faults: Sequence[str] = ()
    """The kinds of faults that chaos causes. If empty: all kinds."""
    fail: float = 0.0
    """Fraction of all attempts that fail with a transient error, from 0 to 0.9."""
    go_on: float = 0.0
    """Seconds in which things are broken and each ended process is followed by another. 0: only `processes` processes
    are started."""
    time_scale: float = 0.1
    """Duration of a task as a fraction of the runtime in its file. At 0.1 the example takes about 15 s on two cores,
    which is half a dozen kills."""
    timeout: float = 300.0
    """Maximum seconds to wait for processes to end, counted from when no more processes are started."""
    disaster: Disaster | None = None
    """What is destroyed under live processes and repaired by one operation. No worker is killed then."""
    kill_half_way: bool = False
    """Whether all workers are killed in the middle of this operation."""
    spark: bool = False
    """Whether this operation runs in Spark. Its driver is then killed half way, too."""
    drill: bool = False
    """Whether a drill is run at the end, on the same workers, and its times are compared with the ledger."""
    seed: int | None = None
    keep: bool = False
    """Whether logs and ledger are kept after a good end, too. The workers' logs name each repair with its source."""

    def __post_init__(self) -> None:
        self._check_numbers()
        for kind in self.faults:
            if kind not in KINDS:
                raise InputError(f"--fault {kind}: give one of {', '.join(KINDS)}")
        self._check_disaster_options()
        if self.drill and self.workers < 2:
            raise InputError(f"--drill --workers {self.workers}: it kills a worker, so it needs at least 2")
        if self.faults and not self.chaos:
            raise InputError("--fault: only with --chaos; without it workers are killed")

    def _check_numbers(self) -> None:
        check_load(self.processes, self.time_scale, self.timeout)
        if self.workers < 1:
            raise InputError(f"--workers {self.workers}: must be at least 1")
        if self.workers > MAX_WORKERS:
            raise InputError(f"--workers {self.workers}: must be at most {MAX_WORKERS}, the most for one machine")
        _not_negative(self.kill_every, "--kill-every")
        _not_negative(self.go_on, "--for")
        if not 0 <= self.fail <= LARGEST_PART:
            raise InputError(
                f"--fail {self.fail:g}: must be from 0 to {LARGEST_PART:g}, the part of attempts that fail"
            )

    def _check_disaster_options(self) -> None:
        """Raise InputError for an option that needs a disaster, or that excludes one."""
        if self.kill_half_way and self.disaster is None:
            raise InputError("--kill-half-way: only with --disaster, because it kills half way through its repair")
        if self.spark and self.disaster is None:
            raise InputError("--spark: only with --disaster, because it is for its repair")
        if self.spark:
            java.check()
        if self.chaos and self.disaster is not None:
            raise InputError("--chaos and --disaster: give one of them")
        if self.drill and self.disaster is not None:
            raise InputError("--drill and --disaster: give one of them")

    @property
    def breaks_for(self) -> float:
        """Seconds in which things are broken. Without `go_on` this is half of the timeout; the other half is for
        recovery."""
        return self.go_on or self.timeout / 2

    def workflows(self) -> list[Workflow]:
        """Return the workflows to run. Raises WorkflowError for the first file that can't be loaded."""
        return [load(path) for path in self.files or [example_path()]]


def disaster_named(name: str | None) -> Disaster | None:
    """Return the disaster with this name. Raises InputError."""
    if name is None or name in [*Disaster]:
        return Disaster(name) if name is not None else None
    raise InputError(f"--disaster {name}: give one of {', '.join(Disaster)}")


def _not_negative(value: float, option: str) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{option} {value}: must be 0 or more")


class Chaos:
    """Decides when to kill, every `every` seconds (0: never), and chooses whom, by the seed."""

    def __init__(self, every: float, seed: int | None = None) -> None:
        self.every = every
        self.seed = secrets.randbelow(2**31) if seed is None else seed
        self._random = random.Random(self.seed)
        self._next: float | None = None

    def start(self, now: float) -> None:
        """Start. The first kill is due `every` seconds from now."""
        self._next = now + self.every if self.every else None

    def stop(self) -> None:
        """Stop all kills."""
        self._next = None

    def is_due(self, now: float) -> bool:
        """Return whether a kill is due. Missed kills are not made up for."""
        if self._next is None or now < self._next:
            return False
        self._next = now + self.every
        return True

    def choose(self, among: Sequence[T]) -> T:
        """Choose one item at random."""
        return self._random.choice(among)

    def deck(self, among: Sequence[T]) -> Iterator[T]:
        """Yield items without end: all of them in random order, then all in another random order."""
        while True:
            yield from self._random.sample(among, len(among))
