"""How a sweep grows: from 20,000 processes to 200,000, with 1 % of them broken, on a cluster, and as a repair.

small, large    20,000 and 200,000 healthy processes, in databases of their own, swept in turn in one session
memory          the peak of each process of a sweep (driver, JVM, executors' Pythons) in the large one by the small one,
                each in a session of its own, which swept nothing else
findings        200,000 processes of which 1 % are broken, by the healthy ones
standalone      a master and two workers of one core, by `local[2]`, each in a process of its own, the second sweep
repair          100,000 lost messages, eight to a process and one to a process, by the bare limit: update_many and LPUSH
                by the thousand
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import psutil
import redis
from pymongo import MongoClient

from recovery.queue import encode
from recovery.records.ids import new_pass, record_id
from recovery.settings import Settings
from recovery.store import Queued
from recovery.sweep import sweep
from recovery.sweep.session import spark
from tests.bench.requeue import LONG_AGO, bare
from tests.bench.rows import Row, medians, ratio_row, row
from tests.bench.sweep_data import fill
from tests.bench.turns import in_turn, ratios
from tests.sweep.shapes import MERGE, OLD, PARTS, Records, message_lost, part, running
from tests.sweep.standalone import Standalone

P = ParamSpec("P")
T = TypeVar("T")

CORES = 2
SMALL, LARGE, LOST = 20_000, 200_000, 100_000
REPETITIONS = 3


def run(settings: Settings, small: int = SMALL, large: int = LARGE, lost: int = LOST) -> list[Row]:
    local = settings.model_copy(update={"spark_master": f"local[{CORES}]"})
    names = {name: f"{settings.database}_{name}" for name in ("small", "large", "lost", "scattered")}
    of = {name: local.model_copy(update={"database": database}) for name, database in names.items()}
    fill(of["small"], small, every=0)
    fill(of["large"], large, every=0)
    rows = [_memory(of, small, large), _growth(of, small, large)]
    rows.append(_findings(of["large"], large))
    rows.append(_standalone(of["large"], large + large // 100, large // 100))
    MongoClient(settings.mongo_uri).drop_database(of["large"].database)
    fill(of["lost"], lost // PARTS, every=1, shapes=(all_messages_lost,))
    rows.append(_repair(of["lost"], lost, ", eight to a process"))
    MongoClient(settings.mongo_uri).drop_database(of["lost"].database)
    fill(of["scattered"], lost, every=1, shapes=(message_lost,))
    rows.append(_repair(of["scattered"], lost, ", one to a process"))
    return rows


def _growth(of: Mapping[str, Settings], small: int, large: int) -> Row:
    with spark(of["small"]):
        works: dict[str, Callable[[], float]] = {
            "large": lambda: sweep_seconds(of["large"], large) / large * 1e6,
            "small": lambda: sweep_seconds(of["small"], small) / small * 1e6,
        }
        in_turn(works, 1)
        found = in_turn(works, REPETITIONS)
    told = medians(found, "µs")
    return ratio_row(
        f"sweep: time per process, {large:,} / {small:,}", ratios(found, "large", "small"), "<= 1.15", told
    )


def _memory(of: Mapping[str, Settings], small: int, large: int) -> Row:
    """Each in processes of its own: what a process has taken it keeps, so after the large one the small one seems to
    take as much."""
    peaks = {name: alone(sweep_peaks, of[name], count) for name, count in (("small", small), ("large", large))}
    grown = {kind: peaks["large"][kind] / peak for kind, peak in peaks["small"].items()}
    told = ", ".join(f"{kind} {peak:.0f} → {peaks['large'][kind]:.0f} MB" for kind, peak in peaks["small"].items())
    return row(f"sweep: memory, {large:,} / {small:,}", max(grown.values()), "<= 1.2", "ratio", told)


def _findings(settings: Settings, healthy: int) -> Row:
    """The same database before and after 1 % were added: in turn can't be, so twice before and twice after."""
    with spark(settings):
        sweep_seconds(settings, healthy)
        before = [sweep_seconds(settings, healthy) / healthy * 1e6 for _ in range(REPETITIONS)]
        broken = fill(settings, healthy // 100, every=1)
        together = healthy + healthy // 100
        after = [sweep_seconds(settings, together, broken) / together * 1e6 for _ in range(REPETITIONS)]
    found = {"1 % broken": after, "healthy": before}
    return ratio_row(
        "sweep: time with 1 % broken", ratios(found, "1 % broken", "healthy"), "<= 1.3", medians(found, "µs a process")
    )


def _standalone(settings: Settings, processes: int, broken: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Standalone(Path(folder))
        try:
            for _ in range(CORES):
                cluster.worker()
            there = settings.model_copy(update={"spark_master": cluster.url})
            found = in_turn(
                {
                    "standalone": lambda: processes / _apart(there, processes, broken, cluster.environment),
                    "local": lambda: processes / _apart(settings, processes, broken, {}),
                },
                REPETITIONS,
            )
        finally:
            cluster.stop()
    measured, told = ratios(found, "standalone", "local"), medians(found, "processes/s")
    return ratio_row("sweep: two standalone workers / local[2]", measured, ">= 0.8", told)


def _repair(settings: Settings, lost: int, of: str) -> Row:
    database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
    broker = redis.Redis.from_url(settings.broker_url)
    ids = [one["_id"] for one in database["decisions"].find({"state": "queued"}, {"_id": True})]
    as_lost = {one: database["decisions"].find_one({"_id": ids[0]})[one] for one in ("queuedAt", "recoveryTime")}
    assert len(ids) == lost, (len(ids), lost)

    def lose() -> None:
        database["decisions"].update_many({"_id": {"$in": ids}}, {"$set": {"state": "queued", **as_lost}})
        broker.flushdb()

    def repaired() -> float:
        lose()
        began = time.perf_counter()
        report = sweep(settings, repair=True)
        assert sum(report.repaired.values()) == lost, report.summary()
        return lost / (time.perf_counter() - began)

    def limit() -> float:
        lose()
        messages = [encode(Queued(one, "part", new_pass(), LONG_AGO)) for one in ids]
        began = time.perf_counter()
        bare(database, broker, ids, messages)
        return lost / (time.perf_counter() - began)

    with spark(settings):
        sweep(settings)
        found = in_turn({"repair": repaired, "bare limit": limit}, REPETITIONS)
    measured, told = ratios(found, "repair", "bare limit"), medians(found, "a second")
    return ratio_row(f"sweep: repair of {lost:,} MESSAGE_LOST{of} / bare limit", measured, ">= 0.3", told)


def all_messages_lost(process_id: str, now: datetime) -> Records:
    """A fan-out whose parts are all queued, and no message of it is there."""
    records = running(process_id, now)
    assert records.graph is not None
    parts = [part(place) for place in range(PARTS)]
    lost = {one: records.decisions[part(0)].evolve(id=record_id(process_id, one), queued_at=now - OLD) for one in parts}
    graph = records.graph.evolve(
        not_finished=dict.fromkeys([*parts, MERGE], now - OLD),
        links={MERGE: dict.fromkeys(parts, True)},
        finished=tuple(one for one in records.graph.finished if one not in parts),
    )
    return replace(records, graph=graph, decisions={**records.decisions, **lost})


def sweep_seconds(settings: Settings, processes: int, broken: int = 0) -> float:
    report = sweep(settings)
    if (report.processes, report.suspects) != (processes, broken):
        raise AssertionError(f"{broken} of {processes} are broken; the sweep says {report.summary()}")
    return report.seconds


def _apart(settings: Settings, processes: int, broken: int, environment: Mapping[str, str]) -> float:
    """Seconds of the second sweep of a session in a process of its own."""
    return alone(_second, settings, processes, broken, dict(environment))


def alone(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a step gives in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(step, *args, **kwargs).result()


def _second(settings: Settings, processes: int, broken: int, environment: Mapping[str, str]) -> float:
    os.environ.update(environment)
    with spark(settings):
        sweep_seconds(settings, processes, broken)
        return sweep_seconds(settings, processes, broken)


def sweep_peaks(settings: Settings, processes: int, times: int = REPETITIONS) -> dict[str, float]:
    """The peaks of this process and of those that it starts, in MB by kind, over a session that sweeps as often."""
    found: dict[str, float] = defaultdict(float)
    with spark(settings):
        for _ in range(times):
            sweep_seconds(settings, processes)
        for process in _ours():
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
            kind = "JVM" if process.name() == "java" else "driver" if process.pid == os.getpid() else "executor"
            found[kind] = max(found[kind], peak)
    return dict(found)


def _ours() -> list[psutil.Process]:
    here = psutil.Process()
    names = ("java", "python")
    return [here, *(one for one in here.children(recursive=True) if one.name().startswith(names))]
