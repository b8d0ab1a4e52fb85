"""Rows of a range of processes, read on an executor: from one collection, merged from all four, findings of rules, or
results of an operation."""

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
"""Processes of a selection, or results of an operation, that are read at once."""

SNAPSHOTS = (
    "process string, type string, state string, started_at timestamp, ended_at timestamp, touched_at timestamp, "
    "tasks bigint, decisions bigint, open bigint, finished bigint, failed bigint, "
    + ", ".join(f"{state.value} bigint" for state in DecisionState if state is not DecisionState.FINISHED)
    + ", decided bigint, timeouts bigint, attempts bigint, damage array<string>"
)
"""Columns of `snapshots`: a row for each process, summed up from all of its records."""
FINDINGS = (
    "process string, type string, rule string, record string, task string, actor string, repair string, "
    "evidence string, found_at timestamp"
)
"""Columns of `findings`: a row for each finding of a rule, as in `recovery check`."""

RESULTS = (
    "operation bigint, process string, type string, rule string, actor string, count bigint, state string, "
    "plan string, before string, after string, error string, record string, evidence string, found_at timestamp, "
    "ended_at timestamp"
)
"""Columns of `results`: a row for each process, rule and actor, with what an operation found and did."""
RESULTS_EACH = 20_000
"""Results in each partition of an operation's results."""

SCHEMAS = {name: table.ddl for name, table in TABLES.items()} | {
    "snapshots": SNAPSHOTS,
    "findings": FINDINGS,
    "results": RESULTS,
}


@dataclass(frozen=True)
class Reading:
    """Instructions for reading a table, which are sent to executors."""

    settings: Settings
    table: str
    query: Query | None
    """A search for processes. None: all processes."""
    conditions: tuple[Document, ...] = ()
    around: Surroundings | None = None
    """State of the cluster by which findings are judged."""
    operation: int | None = None
    """Number of the operation whose results are read."""


def rows(reading: Reading, part: Range) -> Iterator[Row]:
    """Yield the rows of a range."""
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
            for key_conditions in _key_conditions(reading, part):
                for page in stored.matching(table.collection, [*key_conditions, *reading.conditions], table.fields):
                    yield from map(table.row, page)


def _key_conditions(reading: Reading, part: Range) -> Iterator[list[Document]]:
    """Yield conditions on keys that match all records of the range, or those of the selected processes, one page at a
    time."""
    if reading.query is None:
        yield [part.condition()]
        return
    of_task = TABLES[reading.table].of_task
    for ids in _selected(reading, part):
        yield [Ranges.records_of(ids) if of_task else {"_id": {"$in": ids}}]


def _selected(reading: Reading, part: Range) -> Iterator[list[str]]:
    assert reading.query is not None
    search, last_id = connected(reading.settings).store.search, None
    while page := search.page(reading.query, last_id, PAGE, part):
        yield page
        last_id = page[-1]


def _selected_ids(reading: Reading, part: Range) -> list[str] | None:
    if reading.query is None:
        return None
    return [process_id for page in _selected(reading, part) for process_id in page]


def _snapshots(reading: Reading, stored: Ranges, part: Range) -> Iterator[Row]:
    """Yield rows in key order. Reads from several collections at once, and holds only a page of each in memory."""
    selected = _selected_ids(reading, part)
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
                _, process_decisions = decisions.take(process_id)
                yield _snapshot(process, graph, process_decisions, len(tasks.take(process_id)[0]))


def _snapshot(process: Document, graphs: Sequence[Document], decisions: Sequence[Document], tasks: int) -> Row:
    damage: list[str] = []
    graph = graphs[0] if graphs else {}
    sizes = [value(graph, name, COUNT, damage) or 0 for name in ("notFinished", "finished", "failed")]
    touched = value(graph, "touchedAt", MOMENT, damage)
    states = Counter(decision["state"] for decision in decisions if isinstance(decision.get("state"), str))
    known = [state.value for state in DecisionState if state is not DecisionState.FINISHED]
    if states.total() < len(decisions) or not states.keys() <= {*known, DecisionState.FINISHED.value}:
        damage.append("state")
    process_values = [
        value(process, name, kind, damage)
        for name, kind in (("type", TEXT), ("state", TEXT), ("startedAt", MOMENT), ("endedAt", MOMENT))
    ]
    totals = [
        sum(value(decision, name, WHOLE, damage) or 0 for decision in decisions) for name in ("timeouts", "attempts")
    ]
    counts = [states[name] for name in (*known, DecisionState.FINISHED.value)]
    numbers = (tasks, len(decisions), *sizes, *counts, *totals)
    return (process["_id"], *process_values, touched, *numbers, sorted(set(damage)) or None)


def _findings(reading: Reading, part: Range) -> Iterator[Row]:
    assert reading.around is not None
    look = Look(reading.around, _selected_ids(reading, part))
    for snapshots, findings in wrong_in(connected(reading.settings).store, look, part, RangeCounts()):
        types = {snapshot.process_id: snapshot.process.type for snapshot in snapshots if snapshot.process is not None}
        actors = _actors(snapshots)
        for finding in findings:
            yield _finding(finding, types.get(finding.process_id), actors, reading.around.now)


def _actors(snapshots: Sequence[Snapshot]) -> dict[str, str]:
    """Return {record id of a task: actor}."""
    return {decision.id: decision.actor for snapshot in snapshots for decision in snapshot.decisions.values()}


def _finding(finding: Finding, process_type: str | None, actors: dict[str, str], now: datetime) -> Row:
    process, _, task = finding.record.partition("/")
    repair, rule = finding.repair.name, finding.rule.value
    task_columns = (process, process_type, rule, finding.record, task or None, actors.get(finding.record))
    return (*task_columns, repair, finding.evidence, now)


def ranges_of(resources: Resources, number: int) -> Sequence[Range]:
    """Return ranges of an operation's results of equal size."""
    cuts = [None, *resources.store.operation_results.walk(number, RESULTS_EACH), None]
    return [Range(start, end) for start, end in pairwise(cuts)]


def _results(resources: Resources, number: int, part: Range) -> Iterator[Row]:
    """Yield the rows of a range of an operation's results."""
    last_process = None
    stored = resources.store.operation_results
    while len((page := stored.planned(number, last_process, PAGE, part.start, part.end, (), ())).read):
        for damage in page.read.damaged:
            tell(damage)
        for result in page.read.records:
            yield from _result_rows(result)
        last_process = page.last


def numbered(resources: Resources, text: str | None) -> int:
    """Return the number of the operation that the option names. Raises InputError."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"option operation={text!r}: the table results needs the number of an operation")
    if resources.store.operations.get(int(text)) is None:
        raise InputError(f"option operation={text!r}: there is no such operation (`recovery operation list`)")
    return int(text)


def _result_rows(result: OperationResult) -> Iterator[Row]:
    shown = {(finding.rule, finding.actor): finding for finding in reversed(result.findings)}
    for tally in result.tally or (Tally(rule="", count=1),):
        finding = shown.get((tally.rule, tally.actor))
        evidence = (finding.record, finding.evidence) if finding is not None else (None, None)
        tally_columns = (tally.rule or None, tally.actor, tally.count, result.state.value, result.plan)
        end_columns = (result.before, result.after, result.error, *evidence, result.at, result.ended_at)
        yield (result.operation, result.process, result.type, *tally_columns, *end_columns)
