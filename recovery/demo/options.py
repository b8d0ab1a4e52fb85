"""What a demo is told, checked: its options, the kinds of faults and disasters, how long each fault lasts, and who is
struck when: by a seed, so that a run can be tried again.
"""

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
    """Replication stops, then the primary dies: what it wrote meanwhile is gone."""
    MONGODB_AWAY = "mongodb_away"
    """All of it, for longer than any call waits."""
    VALKEY_KILLED = "valkey_killed"
    VALKEY_LOST = "valkey_lost"
    MESSAGES_DROPPED = "messages_dropped"


LASTS: Mapping[FaultKind, float] = {
    # At the most: until others have done what it was at. What it brings when it comes back is too late then.
    FaultKind.WORKER_FROZEN: 20.0,
    FaultKind.BEAT_KILLED: 3.0,
    FaultKind.SECOND_BEAT: 3.0,
    # Longer than an election, so that there are two of them.
    FaultKind.PRIMARY_KILLED: 5.0,
    FaultKind.PRIMARY_FROZEN: 6.0,
    FaultKind.PRIMARY_LOST: 5.0,
    FaultKind.MONGODB_AWAY: 20.0,
    FaultKind.VALKEY_KILLED: 2.0,
    FaultKind.VALKEY_LOST: 2.0,
}
"""Seconds until it is mended; what is not here is at once."""

FAILOVERS = frozenset(
    {
        *(FaultKind.PRIMARY_KILLED, FaultKind.PRIMARY_STEPPED_DOWN, FaultKind.PRIMARY_FROZEN, FaultKind.PRIMARY_LOST),
        # What was in no journal yet is gone with all members.
        FaultKind.MONGODB_AWAY,
    }
)
"""Faults after which what a majority did not have may be taken back."""


class Disaster(StrEnum):
    """What is destroyed."""

    REDIS = "redis"
    """Every message, and all else that is in Redis."""
    GRAPH = "graph"
    """The whole collection of graphs."""
    MIXED = "mixed"
    """A random tenth of the records of every kind."""


MAX_WORKERS = 100
KINDS = [kind.value for kind in FaultKind]
LARGEST_PART = 0.9
"""With more of them a demo would not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a demo. Raises InputError, naming the option, for a value that can't be."""

    files: Sequence[Path] = ()
    """WfFormat files, taken in turn; none: the example that comes with the package."""
    processes: int = 20
    workers: int = 2
    kill_every: float = 2.0
    """Seconds between kills; 0: none. With `chaos`: between the end of a fault and the next."""
    chaos: bool = False
    """Whether not only workers are killed."""
    faults: Sequence[str] = ()
    """The kinds of faults that chaos is made of; none: all of them."""
    fail: float = 0.0
    """The part of all attempts that fail for what passes by itself, from 0 to 0.9."""
    go_on: float = 0.0
    """Seconds in which things are broken and a process that has ended is followed by another; 0: `processes` are
    started, and no more."""
    time_scale: float = 0.1
    """How long a task takes, as a part of the time that its file says. At 0.1 the example takes some 15 s on
    two cores, which is half a dozen kills."""
    timeout: float = 300.0
    """Seconds after which to give up, from when no more processes are started."""
    disaster: Disaster | None = None
    """What is destroyed under live processes, and repaired by one operation; then no worker is killed."""
    kill_half_way: bool = False
    """Whether all workers are killed while that operation is carried out."""
    spark: bool = False
    """Whether that operation runs in Spark; then its driver is killed half way, too."""
    drill: bool = False
    """Whether a drill is run at the end, on the same workers, and its figures held against the ledger's."""
    seed: int | None = None
    keep: bool = False
    """Whether logs and ledger stay after a good end too. The workers' logs name each repair with its source."""

    def __post_init__(self) -> None:
        self._check_numbers()
        for kind in self.faults:
            if kind not in KINDS:
                raise InputError(f"--fault {kind}: there are {', '.join(KINDS)}")
        self._check_disaster_options()
        if self.drill and self.workers < 2:
            raise InputError(f"--drill --workers {self.workers}: it kills a worker, and takes two")
        if self.faults and not self.chaos:
            raise InputError("--fault: only with --chaos; without it workers are killed")

    def _check_numbers(self) -> None:
        check_load(self.processes, self.time_scale, self.timeout)
        if self.workers < 1:
            raise InputError(f"--workers {self.workers}: must be at least 1")
        if self.workers > MAX_WORKERS:
            raise InputError(f"--workers {self.workers}: must be at most {MAX_WORKERS}, which one machine bears")
        _not_negative(self.kill_every, "--kill-every")
        _not_negative(self.go_on, "--for")
        if not 0 <= self.fail <= LARGEST_PART:
            raise InputError(
                f"--fail {self.fail:g}: must be from 0 to {LARGEST_PART:g}, the part of attempts that fail"
            )

    def _check_disaster_options(self) -> None:
        """Raise InputError for an option that needs a disaster, or that excludes one."""
        if self.kill_half_way and self.disaster is None:
            raise InputError("--kill-half-way: only with --disaster; it is half way through its repair")
        if self.spark and self.disaster is None:
            raise InputError("--spark: only with --disaster; it is where its repair runs")
        if self.spark:
            java.check()
        if self.chaos and self.disaster is not None:
            raise InputError("--chaos and --disaster: give one of them")
        if self.drill and self.disaster is not None:
            raise InputError("--drill and --disaster: give one of them")

    @property
    def breaks_for(self) -> float:
        """Seconds in which things are broken. Without `go_on` half of the time that there is: the other half is for
        what was broken last to recover from."""
        return self.go_on or self.timeout / 2

    def workflows(self) -> list[Workflow]:
        """The workflows to run. Raises WorkflowError for the first file that can't be."""
        return [load(path) for path in self.files or [example_path()]]


def disaster_named(name: str | None) -> Disaster | None:
    """The disaster of this name. Raises InputError."""
    if name is None or name in [*Disaster]:
        return Disaster(name) if name is not None else None
    raise InputError(f"--disaster {name}: there are {', '.join(Disaster)}")


def _not_negative(value: float, option: str) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{option} {value}: must be 0 or more")


class Chaos:
    """One kill every `every` seconds (0: never), of whom the seed says."""

    def __init__(self, every: float, seed: int | None = None) -> None:
        self.every = every
        self.seed = secrets.randbelow(2**31) if seed is None else seed
        self._random = random.Random(self.seed)
        self._next: float | None = None

    def start(self, now: float) -> None:
        """The first kill is `every` seconds from now."""
        self._next = now + self.every if self.every else None

    def stop(self) -> None:
        """No more kills."""
        self._next = None

    def is_due(self, now: float) -> bool:
        """Whether to kill now. Kills that were missed are not made up for."""
        if self._next is None or now < self._next:
            return False
        self._next = now + self.every
        return True

    def choose(self, among: Sequence[T]) -> T:
        """Who is killed."""
        return self._random.choice(among)

    def deck(self, among: Sequence[T]) -> Iterator[T]:
        """What comes next, without end: all of them in some order, then all in another."""
        while True:
            yield from self._random.sample(among, len(among))
