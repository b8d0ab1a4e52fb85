"""Ten million live records against one million, in databases of their own on one server: what each thing costs.

A process has a finished start, three parts that are queued, five that are delayed, and one task that waits for them: of
its 22 records 11 are live. What is queued has its message. Nobody serves these queues.

Scans are measured by what they repair or put off, starts by the start, a search by the process that it finds, in pages
of 100 to its end; `status` and the sweep, which look at all that is live, by the live record and by the process;
`doctor`, which does up to a million, by the live record as well. What is scanned was made overdue a moment before, and
is in the cache; a page of a search that begins anywhere is not, among ten million. Memory is that of a worker with its
scanners and of a beat, after a while in which both do what they do by themselves; and of the processes of a sweep.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from multiprocessing import get_context
from typing import Any

import bson
import psutil
import redis
from bson.raw_bson import RawBSONDocument

from recovery import Recovery, Settings
from recovery.cli.status_commands import look
from recovery.health.doctor import examine
from recovery.queue import encode
from recovery.records import DecisionState
from recovery.records.ids import new_process_id, record_id
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner
from recovery.search import parse
from recovery.stack import Stack
from recovery.store import Queued, Store, layout, schema
from recovery.sweep.session import spark
from tests.bench import apps, workers
from tests.bench.requeue import LONG_AGO
from tests.bench.rows import Row, medians, ratio_row, row
from tests.bench.sweep_data import AT_ONCE, TEMPLATE_ID, WRITERS
from tests.bench.sweep_scale import CORES, alone, sweep_peaks, sweep_seconds
from tests.bench.turns import in_turn, ratios
from tests.bench.workers import seconds
from tests.documents import database_of
from tests.sweep.shapes import MERGE, PARTS, Records, finished, part, running
from tests.waiting import wait_until

SMALL, LARGE, REPEATS = 1_000_000, 10_000_000, 5
MORE_REPEATS = {"scan of overdue tasks": 15}
"""It takes half a second, and one pair may be at 0.4 and the next at 2.4."""
QUEUED, LIVE = range(3), PARTS + 3
OVERDUE_TASKS, OVERDUE_PROCESSES, STARTS, PAGES, LOOKS = 10_000, 1_000, 2_000, 100, 20
WATCHED = 60.0
UNSERVED = "unserved"
CACHE_GB = 8


@dataclass(frozen=True, slots=True)
class Place:
    """One of the two databases."""

    app: Recovery
    live: int
    ids: list[str]
    """A sample of its processes, in order of nothing."""
    turn: Iterator[str]

    @property
    def database(self) -> Any:
        return database_of(self.app.resources.store)


def run(stack: Stack, settings: Settings, small: int = SMALL, large: int = LARGE) -> list[Row]:
    places, watched = {}, {}
    for number, (name, live) in enumerate({"small": small, "large": large}.items()):
        there = settings.model_copy(
            update={
                "database": f"{settings.database}_{name}",
                "broker_url": f"{settings.broker_url.rpartition('/')[0]}/{number}",
                "spark_master": f"local[{CORES}]",
                # What a scan queued again is not overdue again, nor is its process.
                "message_timeout": 3600.0,
                "idle_timeout": 7200.0,
            }
        )
        began = time.perf_counter()
        ids = fill(there, live // LIVE)
        _tell(f"{live:,} live records made in {time.perf_counter() - began:.0f} s")
        app = Recovery(there)
        app.actors = apps.app.actors
        random.Random(1).shuffle(ids)
        places[name] = Place(app, live // LIVE * LIVE, ids, iter(ids))
        watched[name] = _watched(stack, there)
    among = f"among {large:,} live / {small:,}"
    rows = [
        row(f"memory of a {kind}: {among}", watched["large"][kind] / of_small, "<= 1.1", "ratio", f"{of_small:.0f} MB")
        for kind, of_small in watched["small"].items()
    ]
    rows += _sweeps(places, among)  # while all is as it was made
    for one in rows:
        _tell(f"{one['name']}: {one['value']:.2f}; {one['detail']}")
    for what, (work, unit) in WORKS.items():
        works = {name: _bound(work, place) for name, place in places.items()}
        in_turn(works, 1)
        found = in_turn(works, MORE_REPEATS.get(what, REPEATS))
        told = medians({name: [one * 1e6 for one in each] for name, each in found.items()}, f"µs {unit}")
        rows.append(ratio_row(f"{what}: {among}", ratios(found, "large", "small"), "<= 1.3", told))
        _tell(f"{what}: {rows[-1]['value']:.2f}; {told}")
    return rows


def _tell(text: str) -> None:
    """It takes a quarter of an hour: who waits sees how far it is."""
    print(f"  {text}", flush=True)


def _bound(work: Callable[[Place], float], place: Place) -> Callable[[], float]:
    return lambda: work(place)


def fill(settings: Settings, processes: int) -> list[str]:
    """So many processes, with their messages; a sample of their ids."""
    layout.create(database_of(Store(settings)))
    share = -(-processes // WRITERS)
    shares = [min(share, processes - place * share) for place in range(WRITERS)]
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        return [one for ids in pool.map(_write, [settings] * WRITERS, shares, range(WRITERS)) for one in ids]


def _write(settings: Settings, processes: int, seed: int) -> list[str]:
    store, broker = Store(settings), redis.Redis.from_url(settings.broker_url)
    chance, now, sample = random.Random(seed), store.now(), list[str]()
    for first in range(0, processes, AT_ONCE):
        ids = [new_process_id() for _ in range(min(AT_ONCE, processes - first))]
        sample += ids[:: max(1, processes // 100_000)]
        # Messages lie in the order in which they were queued.
        began = now - timedelta(hours=24 - 23 * first / processes)
        records = waiting(TEMPLATE_ID, began, now + timedelta(hours=chance.uniform(2, 20)))
        for name, documents in records.to_documents().items():
            templates = [bson.encode(document) for document in documents]
            made: list[Any] = [
                RawBSONDocument(template.replace(TEMPLATE_ID.encode(), one.encode()))
                for one in ids
                for template in templates
            ]
            if made:
                database_of(store)[name].insert_many(made, ordered=False)
        queued = [Queued(record_id(one, part(place)), UNSERVED, "0" * 32, began) for one in ids for place in QUEUED]
        broker.lpush(UNSERVED, *map(encode, queued))
    return sample


def waiting(process_id: str, began: datetime, until: datetime) -> Records:
    """What most of what is live is like: queued, delayed, or waiting for others."""
    records = running(process_id, began)
    whole = finished(process_id, began)
    decisions = {"start": whole.decisions["start"]}
    for place in range(PARTS):
        queued = place in QUEUED
        decisions[part(place)] = whole.decisions[part(place)].evolve(
            state=DecisionState.QUEUED if queued else DecisionState.DELAYED,
            eta=None if queued else until,
            recovery_time=until,
            outcome=None,
            claimed_at=None,
            attempts=0,
            actor=UNSERVED,
            children=(),
        )
    decisions[MERGE] = records.decisions[MERGE]
    open_parts = [part(place) for place in range(PARTS)]
    assert records.graph is not None
    graph = records.graph.evolve(
        not_finished=dict.fromkeys((*open_parts, MERGE), began),
        links={MERGE: dict.fromkeys(open_parts, True)},
        finished=("start",),
        touched_at=began,
        recovery_time=until,
    )
    process = records.process.evolve(recovery_time=until, started_at=began)
    tasks = {name: task.evolve(actor=decisions[name].actor) for name, task in records.tasks.items()}
    return Records(process, graph, tasks, decisions)


def _watched(stack: Stack, settings: Settings) -> dict[str, float]:
    """MB of a worker, with its pool, and of a beat."""
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True) as children:
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > WATCHED, WATCHED + 5, "a while beside what is live")
        return dict(zip(("worker", "beat"), (_memory(child.pid) for child in children), strict=True))


def _memory(pid: int) -> float:
    process = psutil.Process(pid)
    return float(sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))) / 1e6


def _overdue(place: Place, collection: str, keys: list[str], **fields: Any) -> None:
    """Have these fall overdue, and nothing else."""
    place.database[collection].update_many({"_id": {"$in": keys}}, {"$set": {"recoveryTime": LONG_AGO, **fields}})


def _scan_tasks(place: Place) -> float:
    """Delayed tasks that are due."""
    each = len(range(len(QUEUED), PARTS))
    ids = list(islice(place.turn, OVERDUE_TASKS // each))
    keys = [record_id(one, part(task)) for one in ids for task in range(len(QUEUED), PARTS)]
    _overdue(place, schema.DECISIONS, keys, eta=LONG_AGO)
    took, result = _timed(lambda: DecisionScanner(place.app.resources, place.app.outbox).run_once())
    assert result.repaired.total() == OVERDUE_TASKS, result
    return took / OVERDUE_TASKS


def _scan_graphs(place: Place) -> float:
    _overdue(place, schema.GRAPHS, list(islice(place.turn, OVERDUE_PROCESSES)))
    took, result = _timed(lambda: GraphScanner(place.app.resources, place.app.outbox).run_once())
    assert (result.error, result.looked_at) == (None, OVERDUE_PROCESSES), result
    return took / OVERDUE_PROCESSES


def _scan_processes(place: Place) -> float:
    _overdue(place, schema.PROCESSES, list(islice(place.turn, OVERDUE_PROCESSES)))
    took, result = _timed(lambda: ProcessScanner(place.app.resources, place.app.outbox).run_once())
    assert (result.error, result.looked_at) == (None, OVERDUE_PROCESSES), result
    return took / OVERDUE_PROCESSES


def _look(place: Place) -> float:
    """With nothing overdue, as a worker does it: a look at all collections, and a scan, since tasks are queued."""
    scanner, due = DecisionScanner(place.app.resources, place.app.outbox), place.app.resources.store.due

    def looks() -> None:
        for _ in range(LOOKS):
            found = due.look()
            assert found.collections == {schema.DECISIONS}, found
            assert scanner.run_once().looked_at == 0

    return seconds(looks) / LOOKS


def _start(place: Place) -> float:
    def start() -> None:
        assert not any(one.error for one in place.app.start_many("nothing", [[]] * STARTS))
        assert place.app.registrar.wait(60)

    return seconds(start) / STARTS


def _status(place: Place) -> float:
    took, found = _timed(lambda: look(place.app.resources))
    assert found["decisions"]["queued"] >= place.live // LIVE * len(QUEUED)
    return took / place.live


def _doctor(place: Place) -> float:
    took, found = _timed(lambda: list(examine(place.app.resources)))
    assert not [one for one in found if "could not be asked" in one.found], found
    return took / place.live


QUERY = "state:running type:orders"


def _page(place: Place) -> float:
    """Pages that begin anywhere, of all that runs of a type."""
    query = parse(QUERY, place.app.resources.store.now())
    search, after = place.app.resources.store.search, list(islice(place.turn, PAGES))

    def pages() -> None:
        for one in after:
            search.page(query, one, 100)

    return seconds(pages) / PAGES


def _search(place: Place) -> float:
    """All of them, page by page, as operators and what they order go through a search."""
    query = parse(QUERY, place.app.resources.store.now())
    search, found = place.app.resources.store.search, 0

    def pages() -> None:
        nonlocal found
        after: str | None = None
        while page := search.page(query, after, 100):
            found, after = found + len(page), page[-1]

    took = seconds(pages)
    assert found >= place.live // LIVE, found
    return took / found


WORKS: Mapping[str, tuple[Callable[[Place], float], str]] = {
    "scan, nothing overdue": (_look, "each"),
    "scan of overdue tasks": (_scan_tasks, "each"),
    "scan of overdue graphs": (_scan_graphs, "each"),
    "scan of overdue processes": (_scan_processes, "each"),
    # MongoDB keeps what these moved out of an index for five minutes, and each look goes through that.
    "scan, nothing overdue any more": (_look, "each"),
    "start_many": (_start, "each"),
    "search, a page that begins anywhere": (_page, "a page"),
    "search": (_search, "a process found"),
    "status": (_status, "a live record"),
    "doctor": (_doctor, "a live record"),
}


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _sweeps(places: Mapping[str, Place], among: str) -> list[Row]:
    """By turns, after one that warms up; and for the memory in processes of their own."""
    settings = {name: place.app.resources.settings for name, place in places.items()}
    counts = {name: place.database[schema.PROCESSES].estimated_document_count() for name, place in places.items()}
    with spark(settings["small"]):
        sweep_seconds(settings["small"], counts["small"])
        works = {name: _bound_sweep(settings[name], counts[name]) for name in places}
        found = in_turn(works, 2)
    told = medians({name: [one * 1e6 for one in each] for name, each in found.items()}, "µs a process")
    rows = [ratio_row(f"sweep, by the process: {among}", ratios(found, "large", "small"), "<= 1.3", told)]
    peaks = {name: alone(sweep_peaks, settings[name], counts[name], 1) for name in places}
    for kind, of_small in peaks["small"].items():
        of_large = peaks["large"][kind]
        detail = f"{of_small:.0f} → {of_large:.0f} MB"
        rows.append(row(f"memory of a sweep's {kind}: {among}", of_large / of_small, "<= 1.2", "ratio", detail))
    return rows


def _bound_sweep(settings: Settings, processes: int) -> Callable[[], float]:
    return lambda: sweep_seconds(settings, processes) / processes
