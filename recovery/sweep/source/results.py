"""The table `results`: what an operation found on, and did to, each process, a row for each rule and actor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.records import OperationResult, Tally
from recovery.store.reading import tell
from recovery.store.views.ranges import Range
from recovery.store.views.tables import Row

RESULTS = (
    "operation bigint, process string, type string, rule string, actor string, count bigint, state string, "
    "plan string, before string, after string, error string, record string, evidence string, found_at timestamp, "
    "ended_at timestamp"
)
RESULTS_EACH = 20_000
"""Of a partition."""
PAGE = 1000


def ranges_of(resources: Resources, number: int) -> Sequence[Range]:
    """Ranges of an operation's results that are even in size."""
    cuts = [None, *resources.store.operation_results.walk(number, RESULTS_EACH), None]
    return [Range(start, end) for start, end in pairwise(cuts)]


def results(resources: Resources, number: int, part: Range) -> Iterator[Row]:
    """The rows of a range."""
    after = None
    stored = resources.store.operation_results
    while len((page := stored.planned(number, after, PAGE, part.start, part.end, (), ())).read):
        for damage in page.read.damaged:
            tell(damage)
        for result in page.read.records:
            yield from _rows(result)
        after = page.last


def numbered(resources: Resources, text: str | None) -> int:
    """The operation that the option names. Raises InputError."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"option operation={text!r}: the table results takes the number of an operation")
    if resources.store.operations.get(int(text)) is None:
        raise InputError(f"option operation={text!r}: there is no such operation (`recovery operation list`)")
    return int(text)


def _rows(result: OperationResult) -> Iterator[Row]:
    shown = {(one.rule, one.actor): one for one in reversed(result.findings)}
    for one in result.tally or (Tally(rule="", count=1),):
        finding = shown.get((one.rule, one.actor))
        told = (finding.record, finding.evidence) if finding is not None else (None, None)
        counted = (one.rule or None, one.actor, one.count, result.state.value, result.plan)
        ended = (result.before, result.after, result.error, *told, result.at, result.ended_at)
        yield (result.operation, result.process, result.type, *counted, *ended)
