"""A page of 100 of a search that an index answers, among 1,000,000 decisions, against the bare queries for the same.

The bare queries are what one would write who knows where things are, with the same read concern: for most searches one,
for an error one of each of the two collections that have it, since a process may be broken for its own or for that of a
task. Pages begin anywhere; each is asked for in both ways, one after the other, the order turned round each time. The
first of them, for which connections are made and plans are chosen, are not counted.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from recovery import Settings
from recovery.records import Decision, DecisionState, ErrorInfo, Interruption, Process, ProcessState, to_document
from recovery.records.ids import child_task_id, new_process_id, record_id
from recovery.search import parse
from recovery.store import Store, layout, schema
from recovery.store.concerns import committed
from tests.bench.rows import Row, row
from tests.bench.turns import in_turn
from tests.documents import database_of

PROCESSES, PER_PROCESS, AT_ONCE = 100_000, 10, 1_000
PAGE, SAMPLES, WARM_UP = 100, 3_000, 100
NOW = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = ("order", "mail", "report", "import", "export")
ID = {"_id": True}

Bare = Callable[[Any, str], list[str]]


def run(settings: Settings) -> list[Row]:
    store = Store(settings)
    database: Any = database_of(store)
    layout.create(database)
    ids = [one for page in fill(database) for one in page]
    rows = []
    for text, bare in SEARCHES.items():
        rows.append(_compared(store, text, bare, random.Random(1).sample(ids, WARM_UP + SAMPLES)))
    return [*rows, _mixed(store, random.Random(1).sample(ids, SAMPLES // 30)), _parsing()]


def _of_processes(**wanted: Any) -> Bare:
    def ask(database: Any, after: str) -> list[str]:
        found = committed(database[schema.PROCESSES]).find({"_id": {"$gt": after}, **wanted}, ID).sort("_id", 1)
        return [one["_id"] for one in found.limit(PAGE)]

    return ask


def _of_errors(kind: str) -> Bare:
    def ask(database: Any, after: str) -> list[str]:
        own = _of_processes(**{"state": {"$in": ["broken", "aborted"]}, "error.kind": kind})(database, after)
        listed = committed(database[schema.INTERRUPTIONS]).find({"_id": {"$gt": f"{after}0"}, "kind": kind}, ID)
        found = {one["_id"].partition("/")[0] for one in listed.sort("_id", 1).limit(PAGE)}
        return sorted({*own, *found})[:PAGE]

    return ask


SEARCHES: dict[str, Bare] = {
    "": _of_processes(),
    "type:order": _of_processes(type="order"),
    "state:running": _of_processes(state="running"),
    "state:broken": _of_processes(state="broken"),
    "type:order state:running": _of_processes(type="order", state="running"),
    "label.customer:c7": _of_processes(labels="customer=c7"),
    "error:TimeoutError": _of_errors("TimeoutError"),
}


def fill(database: Any) -> Iterator[list[str]]:
    """Processes with their decisions, 2 % broken and 10 % running; their ids, page by page."""
    draw = random.Random(1)
    for _ in range(0, PROCESSES, AT_ONCE):
        processes, decisions, interruptions = [], [], []
        for _ in range(AT_ONCE):
            process_id, place = new_process_id(), draw.random()
            state = "broken" if place < 0.02 else "running" if place < 0.12 else "finished"
            processes.append(_process(process_id, ProcessState(state), draw))
            tasks = [record_id(process_id, child_task_id("start", 0, task)) for task in range(PER_PROCESS)]
            decisions += [_decision(task, state == "running" and task == tasks[0], draw) for task in tasks]
            if state == "broken":
                interruptions.append(_interruption(tasks[0], draw))
        database[schema.PROCESSES].insert_many(processes, ordered=False)
        database[schema.DECISIONS].insert_many(decisions, ordered=False)
        database[schema.INTERRUPTIONS].insert_many(interruptions, ordered=False)
        yield [process["_id"] for process in processes]


def _process(process_id: str, state: ProcessState, draw: random.Random) -> dict[str, Any]:
    is_running = state is ProcessState.RUNNING
    error = (
        ErrorInfo(kind=draw.choice(["TimeoutError", "OSError"]), message="") if state is ProcessState.BROKEN else None
    )
    labels = (f"customer=c{draw.randrange(50)}",)
    return to_document(Process(
        id=process_id, type=draw.choice(WORDS), args="[[],{}]", state=state, started_at=NOW, labels=labels,
        error=error, recovery_time=NOW + timedelta(days=365) if is_running else None,
        ended_at=None if is_running else NOW,
    ))  # fmt: skip


def _decision(key: str, is_open: bool, draw: random.Random) -> dict[str, Any]:
    live = {"state": DecisionState.QUEUED, "queued_at": NOW, "recovery_time": NOW + timedelta(days=365)}
    state: dict[str, Any] = live if is_open else {"state": DecisionState.FINISHED, "attempts": 1}
    return to_document(Decision(id=key, actor=draw.choice(WORDS), **state))


def _interruption(key: str, draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["TimeoutError", "OSError"])
    return to_document(
        Interruption(id=key, type=draw.choice(WORDS), actor="pay", kind=kind, message="", fingerprint="f", at=NOW)
    )


def _compared(store: Store, text: str, bare: Bare, places: Sequence[str]) -> Row:
    query, database = parse(text, NOW), database_of(store)
    ours, theirs = list[float](), list[float]()
    for after in places:
        found = dict[str, list[str]]()

        def page(after: str = after, found: dict[str, list[str]] = found) -> float:
            return _timed(found, "ours", lambda: store.search.page(query, after, PAGE))

        def bare_page(after: str = after, found: dict[str, list[str]] = found) -> float:
            return _timed(found, "bare", lambda: bare(database, after))

        works = {"ours": page, "bare": bare_page} if len(ours) % 2 else {"bare": bare_page, "ours": page}
        took = in_turn(works, 1)
        ours += took["ours"]
        theirs += took["bare"]
        assert found["ours"] == found["bare"], text
    ours, theirs = ours[WARM_UP:], theirs[WARM_UP:]
    p99, p99_bare = _p99(ours), _p99(theirs)
    detail = (
        f"p99 {1000 * p99:.2f} ms, bare {1000 * p99_bare:.2f} ms; p50 {1000 * statistics.median(ours):.2f} ms, bare "
        f"{1000 * statistics.median(theirs):.2f} ms; {len(ours):,} pages"
    )
    return row(f"page of {text or 'every process'} / bare, p99", p99 / p99_bare, "<= 2", "ratio", detail)


def _timed(found: dict[str, list[str]], name: str, work: Callable[[], list[str]]) -> float:
    began = time.perf_counter()
    found[name] = work()
    return time.perf_counter() - began


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _mixed(store: Store, places: Sequence[str]) -> Row:
    """What is asked of candidates in another collection: no bare query gives such a page."""
    query, found = parse("state:running actor:order", NOW), dict[str, list[str]]()
    took = [_timed(found, "ours", lambda after=after: store.search.page(query, after, PAGE)) for after in places]  # type: ignore[misc]
    assert found["ours"]
    detail = f"p50 {1000 * statistics.median(took):.0f} ms; 1 process of 5 that run"
    return row("page of state:running actor:order, p99", 1000 * _p99(took), "", "ms", detail)


def _parsing() -> Row:
    text, took = "type:order state:broken not (error:Timeout* or idle:longer(1h)) label.customer:acme", list[float]()
    for _ in range(SAMPLES):
        began = time.perf_counter()
        parse(text, NOW)
        took.append(time.perf_counter() - began)
    return row("reading a search of 5 terms", 1000 * statistics.median(took), "", "ms", "once for all of its pages")
