"""What a Spark task does: it leases one range of an operation and works at it, as a recovery worker does.

Which range that is, is for the leases to say and not for Spark: so a task that is tried again, beside one that is still
running on an executor that Spark has abandoned, takes another range or none, and nothing is counted twice.
"""

from __future__ import annotations

import gc
import json
import logging
import math
from dataclasses import dataclass
from functools import lru_cache

from recovery.engine import Applier
from recovery.engine.isolation import in_a_line
from recovery.metrics.carried_counts import Counted, counted, grown
from recovery.operations import OperationWorker
from recovery.records.given import is_finite
from recovery.settings import Settings
from recovery.sweep.connections import connected

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What the driver sends to all executors."""

    settings: Settings
    operation: int
    name: str
    """In whose name ranges are leased: the driver takes back what executors that are gone had."""
    seconds: float = math.inf
    """After which a range is given back, as far as it is."""


@dataclass(frozen=True)
class Worked:
    """What came of a task."""

    counted: Counted
    """In this process, which nobody scrapes."""
    error: str | None = None
    """Why it was cut off. Told and not raised: what it and the other tasks of the job counted would be lost."""

    def to_text(self) -> str:
        """Return this as JSON, for a server of Spark's in between that must not be able to run anything here."""
        counted = [[sample, dict(labels), value] for (sample, labels), value in self.counted.items()]
        return json.dumps({"counted": counted, "error": self.error})

    @classmethod
    def from_text(cls, text: str) -> Worked:
        """Read what `to_text` wrote. Raises ValueError for anything else."""
        match json.loads(text):
            case {"counted": list(samples), "error": str() | None as error}:
                return cls(dict(map(_sample, samples)), error)
        raise ValueError("it is not what a task of ours returns")


def _sample(sample: object) -> tuple[tuple[str, tuple[tuple[str, str], ...]], float]:
    match sample:
        case [str(name), dict(labels), int() | float() as value] if is_finite(value):
            return (name, tuple(sorted((str(key), str(label)) for key, label in labels.items()))), float(value)
    raise ValueError("a sample is a name, labels and a number")


def work_at_a_range(work: Work) -> Worked:
    """Lease a range, and work at it till it is done, or nobody is to work at it. Nothing happens where none is free.
    Does not raise."""
    before, error = counted(), None
    try:
        _worker(work.settings, work.name).work_once(work.operation, work.seconds)
    except Exception as failed:
        log.warning("operation %d: a range is given back", work.operation, exc_info=True)
        error = in_a_line(failed)
    return Worked(grown(before), error)


@lru_cache(maxsize=4)
def _worker(settings: Settings, name: str) -> OperationWorker:
    resources = connected(settings)
    worker = OperationWorker(resources, Applier(resources), name)
    # PySpark collects after each task, and would look at all that was imported each time: a sixth of a task's CPU.
    gc.freeze()
    return worker
