"""The sweep against a plain loop and against a bare read of the same data, in one run.

    loop     one thread, process by process: four finds, then the rules
    read     two plain processes read the sweep's ranges, briefly as it does, as raw batches, decoding nothing
    sweep    the sweep in Spark on two cores, without the start of its session

What is at rest and the same bytes as what the sweep has looked at it only compares, as most of this data is. So the two
are measured once more where no process is like another.

The sweep only counts the Task records of what is at rest, whose keys the bare read reads: one without these is told as
well. All are repeated in turn, in an order that is turned round each time, so that what else the machine does falls on
all of them; ratios are taken within a repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median

from recovery.engine import Resources
from recovery.repair import look_around
from recovery.rules import judge_process
from recovery.settings import Settings
from recovery.store import Store, schema
from recovery.store.views.ranges import BRIEF, PAGE, Range
from recovery.survey.plan import plan
from recovery.sweep import sweep
from recovery.sweep.session import spark
from tests.bench.rows import Row, ratio_row, row
from tests.bench.sweep_data import fill
from tests.bench.turns import in_turn, ratios
from tests.documents import database_of

CORES = 2
PROCESSES = 200_000
LOOPED = 2_000
"""Processes that the loop checks: enough for its rate."""
REPETITIONS = 5
UNLIKE = 5
"""So many times fewer are those that are not alike."""
OVER_LOOP, OVER_READ = ">= 10", ">= 0.6"


def run(settings: Settings, processes: int = PROCESSES, repetitions: int = REPETITIONS) -> list[Row]:
    """Fill the database of `settings`, which should be empty, measure, and tell how both bars are met."""
    settings = settings.model_copy(update={"spark_master": f"local[{CORES}]"})
    unlike = settings.model_copy(update={"database": f"{settings.database}_unlike"})
    broken, resources = fill(settings, processes), Resources.connect(settings)
    few = processes // UNLIKE
    broken_unlike = fill(unlike, few, alike=False)
    began = time.perf_counter()
    with spark(settings) as context, ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as readers:
        context.parallelize(range(CORES), CORES).map(_import_all).collect()
        session_seconds = time.perf_counter() - began
        works = {
            "loop": lambda: _rate(LOOPED, lambda: _loop(resources, LOOPED)),
            **_read_and_swept(settings, readers, processes, broken),
        }
        in_turn({name: works[name] for name in ("loop", "read")}, 1)  # connections, imports, and mongod's cache
        rates = in_turn(works, repetitions)
        works = _read_and_swept(unlike, readers, few, broken_unlike)
        in_turn(works, 1)
        rates_unlike = in_turn(works, repetitions)
    ranges, decisions = len(plan(resources.store.ranges, CORES)), resources.store.ranges.volume()[1]
    facts = f"{processes:,} processes, {decisions:,} decisions, {ranges} ranges"
    return [
        ratio_row("sweep over a plain loop", ratios(rates, "sweep", "loop"), OVER_LOOP, facts),
        ratio_row("sweep over a bare read", ratios(rates, "sweep", "read"), OVER_READ, facts),
        ratio_row("sweep over a bare read without tasks", ratios(rates, "sweep", "read without tasks"), "", facts),
        ratio_row(
            "sweep over a bare read, no two alike", ratios(rates_unlike, "sweep", "read"), "", f"{few:,} processes"
        ),
        *(
            row(f"sweep: {name}", median(found), "", "processes/s", f"range {min(found):,.0f} to {max(found):,.0f}")
            for name, found in rates.items()
        ),
        row("sweep: start of Spark", session_seconds, "", "s", "once, not in the rates: JVM, executors, imports"),
    ]


def _read_and_swept(
    settings: Settings, readers: ProcessPoolExecutor, processes: int, broken: int
) -> dict[str, Callable[[], float]]:
    parts = plan(Resources.connect(settings).store.ranges, CORES)

    def swept() -> float:
        report = sweep(settings)
        if (report.processes, report.suspects) != (processes, broken):
            raise AssertionError(f"{broken} of {processes} are broken; the sweep says {report.summary()}")
        return processes / report.seconds

    return {
        "read": lambda: _rate(processes, lambda: [*readers.map(_read, [settings] * len(parts), parts)]),
        "read without tasks": lambda: _rate(
            processes, lambda: [*readers.map(_read_without_tasks, [settings] * len(parts), parts)]
        ),
        "sweep": swept,
    }


def _rate(processes: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return processes / (time.perf_counter() - began)


def _loop(resources: Resources, count: int) -> None:
    """Check processes from all over the database, one after the other."""
    store, around = resources.store, look_around(resources)
    chosen = database_of(store)[schema.PROCESSES].aggregate([{"$sample": {"size": count}}, {"$project": {"_id": True}}])
    for document in chosen:
        for snapshot in store.snapshots([document["_id"]]):
            judge_process(snapshot, around)


def _read(settings: Settings, part: Range, names: Iterable[str] = BRIEF) -> int:
    """Read a range as it is: bytes."""
    database = database_of(Store(settings))
    size = 0
    for name in names:
        found = database[name].find_raw_batches(part.condition(), BRIEF[name], batch_size=PAGE)
        size += sum(len(batch) for batch in found.sort("_id", 1).hint("_id_"))
    return size


def _read_without_tasks(settings: Settings, part: Range) -> int:
    return _read(settings, part, [name for name in BRIEF if name != schema.TASKS])


def _import_all(number: int) -> int:
    """Makes an executor start and import what it will need."""
    from recovery.sweep import job

    return number if job else 0
