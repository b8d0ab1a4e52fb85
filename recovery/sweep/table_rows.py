"""The rows of a range of processes, read on an executor: of one collection, of all four merged, of what is
wrong, or of what an operation found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from recovery.engine import Resources
from recovery.errors import InputError
from recovery.records import DecisionState, OperationResult, Tally
from recovery.rules import Finding, Snapshot, Surroundings
from recovery.search import Query
from recovery.settings import Settings
from recovery.store import schema
from recovery.store.client import Document
from recovery.store.record_reading import tell
from recovery.store.views.ranges import Range, Ranges
from recovery.store.views.table_columns import COUNT, MOMENT, TABLES, TEXT, WHOLE, Row, value
from recovery.survey import Look, RangeCounts, wrong_in
from recovery.survey.record_streams import Stream
from recovery.sweep.job import connected

PAGE = 1000
"""Processes of a selection, or results of an operation, that are read together."""

SNAPSHOTS = (
    "process string, type string, state string, started_at timestamp, ended_at timestamp, touched_at timestamp, "
    "tasks bigint, decisions bigint, open bigint, finished bigint, failed bigint, "
    + ", ".join(f"{state.value} bigint" for state in DecisionState if state is not DecisionState.FINISHED)
    + ", decided bigint, timeouts bigint, attempts bigint, damage array<string>"
)
"""A row for each process, summed up from all of its records."""
FINDINGS = (
    "process string, type string, rule string, record string, task string, actor string, repair string, "
    "evidence string, found_at timestamp"
)
"""A row for each finding of a rule, as the scanners and `recovery check` have it."""

RESULTS = (
    "operation bigint, process string, type string, rule string, actor string, count bigint, state string, "
    "plan string, before string, after string, error string, record string, evidence string, found_at timestamp, "
    "ended_at timestamp"
)
"""A row for what an operation found on, and did to, each process, by rule and actor."""
RESULTS_EACH = 20_000
"""Of one partition of an operation's results."""

SCHEMAS = {name: table.ddl for name, table in TABLES.items()} | {
    "snapshots": SNAPSHOTS,
    "findings": FINDINGS,
    "results": RESULTS,
}


@dataclass(frozen=True)
class Reading:
    """What is read, as it is sent to executors."""

    settings: Settings
    table: str
    query: Query | None
    """Of which processes; None: of all."""
    conditions: tuple[Document, ...] = ()
    around: Surroundings | None = None
    """What findings are judged by."""
    operation: int | None = None
    """Whose results."""


def rows(reading: Reading, part: Range) -> Iterator[Row]:
    """The rows of a range."""
    stored = connected(reading.settings).store.ranges
    match reading.table:
        case "results":
            assert reading.operation is not None
            yield from _results(connected(reading.settings), reading.operation, part)
        case "findings":
            yield from _findings(reading, part)
        case "snapshots":
            yield from _snapshots(reading, stored, part)
        case name:
            table = TABLES[name]
            for among in _among(reading, part):
                for page in stored.matching(table.collection, [*among, *reading.conditions], table.fields):
                    yield from map(table.row, page)


def _among(reading: Reading, part: Range) -> Iterator[list[Document]]:
    """Conditions on keys that name all records of the range; or of what is selected in it, some at a time."""
    if reading.query is None:
        yield [part.condition()]
        return
    of_task = TABLES[reading.table].of_task
    for ids in _selected(reading, part):
        yield [Ranges.records_of(ids) if of_task else {"_id": {"$in": ids}}]


def _selected(reading: Reading, part: Range) -> Iterator[list[str]]:
    assert reading.query is not None
    search, after = connected(reading.settings).store.search, None
    while page := search.page(reading.query, after, PAGE, part):
        yield page
        after = page[-1]


def _chosen(reading: Reading, part: Range) -> list[str] | None:
    if reading.query is None:
        return None
    return [one for page in _selected(reading, part) for one in page]


def _snapshots(reading: Reading, stored: Ranges, part: Range) -> Iterator[Row]:
    """In key order from three collections at once, and nothing held but a page of each."""
    selected = _chosen(reading, part)
    chosen = frozenset(selected) if selected is not None else None
    fields = {"state": True, "timeouts": True, "attempts": True}
    graphs = Stream(stored.pages(schema.GRAPHS, part))
    decisions = Stream(stored.pages(schema.DECISIONS, part, fields))
    tasks = Stream(stored.pages(schema.TASKS, part))
    for page in stored.pages(schema.PROCESSES, part):
        for process in page:
            process_id = process["_id"]
            if chosen is None or process_id in chosen:
                _, graph = graphs.take(process_id)
                _, decided = decisions.take(process_id)
                yield _snapshot(process, graph, decided, len(tasks.take(process_id)[0]))


def _snapshot(process: Document, graphs: Sequence[Document], decisions: Sequence[Document], tasks: int) -> Row:
    damage: list[str] = []
    graph = graphs[0] if graphs else {}
    sizes = [value(graph, name, COUNT, damage) or 0 for name in ("notFinished", "finished", "failed")]
    touched = value(graph, "touchedAt", MOMENT, damage)
    states = Counter(one["state"] for one in decisions if isinstance(one.get("state"), str))
    known = [state.value for state in DecisionState if state is not DecisionState.FINISHED]
    if states.total() < len(decisions) or not states.keys() <= {*known, DecisionState.FINISHED.value}:
        damage.append("state")
    of_process = [
        value(process, name, kind, damage)
        for name, kind in (("type", TEXT), ("state", TEXT), ("startedAt", MOMENT), ("endedAt", MOMENT))
    ]
    sums = [sum(value(one, name, WHOLE, damage) or 0 for one in decisions) for name in ("timeouts", "attempts")]
    counts = [states[name] for name in (*known, DecisionState.FINISHED.value)]
    numbers = (tasks, len(decisions), *sizes, *counts, *sums)
    return (process["_id"], *of_process, touched, *numbers, sorted(set(damage)) or None)


def _findings(reading: Reading, part: Range) -> Iterator[Row]:
    assert reading.around is not None
    look = Look(reading.around, _chosen(reading, part))
    for snapshots, findings in wrong_in(connected(reading.settings).store, look, part, RangeCounts()):
        types = {one.process_id: one.process.type for one in snapshots if one.process is not None}
        actors = _actors(snapshots)
        for finding in findings:
            yield _finding(finding, types.get(finding.process_id), actors, reading.around.now)


def _actors(snapshots: Sequence[Snapshot]) -> dict[str, str]:
    """{record of a task: its actor}"""
    return {one.id: one.actor for snapshot in snapshots for one in snapshot.decisions.values()}


def _finding(finding: Finding, process_type: str | None, actors: dict[str, str], now: datetime) -> Row:
    process, _, task = finding.record.partition("/")
    repair, rule = finding.repair.name, finding.rule.value
    of = (process, process_type, rule, finding.record, task or None, actors.get(finding.record))
    return (*of, repair, finding.evidence, now)


def ranges_of(resources: Resources, number: int) -> Sequence[Range]:
    """Ranges of an operation's results that are even in size."""
    cuts = [None, *resources.store.operation_results.walk(number, RESULTS_EACH), None]
    return [Range(start, end) for start, end in pairwise(cuts)]


def _results(resources: Resources, number: int, part: Range) -> Iterator[Row]:
    """The rows of a range."""
    after = None
    stored = resources.store.operation_results
    while len((page := stored.planned(number, after, PAGE, part.start, part.end, (), ())).read):
        for damage in page.read.damaged:
            tell(damage)
        for result in page.read.records:
            yield from _result_rows(result)
        after = page.last


def numbered(resources: Resources, text: str | None) -> int:
    """The operation that the option names. Raises InputError."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"option operation={text!r}: the table results takes the number of an operation")
    if resources.store.operations.get(int(text)) is None:
        raise InputError(f"option operation={text!r}: there is no such operation (`recovery operation list`)")
    return int(text)


def _result_rows(result: OperationResult) -> Iterator[Row]:
    shown = {(one.rule, one.actor): one for one in reversed(result.findings)}
    for one in result.tally or (Tally(rule="", count=1),):
        finding = shown.get((one.rule, one.actor))
        told = (finding.record, finding.evidence) if finding is not None else (None, None)
        counted = (one.rule or None, one.actor, one.count, result.state.value, result.plan)
        ended = (result.before, result.after, result.error, *told, result.at, result.ended_at)
        yield (result.operation, result.process, result.type, *counted, *ended)
