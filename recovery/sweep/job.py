"""The Spark job: one task per range, results back to the driver. No shuffle, no data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from recovery.errors import SweepFailed
from recovery.store.views.ranges import Range
from recovery.sweep.examine import SweepRequest, examine
from recovery.sweep.report import RangeResult


def run(context: SparkContext, ranges: Sequence[Range], request: SweepRequest) -> list[RangeResult]:
    """Examine all ranges; their results in order. Raises SweepFailed if one can't be examined."""
    sent = context.broadcast(request)
    try:
        parts = context.parallelize(ranges, len(ranges))
        results: list[RangeResult] = parts.mapPartitions(_Examine(sent)).collect()
    except (PySparkException, Py4JError) as error:
        raise SweepFailed(
            f"the sweep was cut off: {_cause(str(error))}. What it repaired until then stays; start it again"
        ) from None
    finally:
        sent.destroy()
    return results


class _Examine:
    """What a task runs. A class, so that an executor imports it instead of unpickling its code."""

    def __init__(self, sent: Any) -> None:
        self._sent = sent

    def __call__(self, parts: Iterable[Range]) -> Iterator[RangeResult]:
        return (examine(self._sent.value, part) for part in parts)


def _cause(trace: str) -> str:
    """The error itself: the last line of Python's part of a trace, which Java's part follows."""
    lines = [line.strip() for line in trace.partition("\n\tat ")[0].splitlines()]
    told = [line for line in lines if line and not line.startswith("SQLSTATE")]
    return told[-1][:500] if told else "no reason given"
