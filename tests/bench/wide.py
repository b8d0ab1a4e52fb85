"""One process with many parallel tasks, against as many in processes of 100: the cost per task, whatever the slots.

With tasks that do nothing, on two slots; with tasks of 50 ms, on 16 and on 64, where hundreds end in a second in the
one graph; and one process of 100,000 tasks.
"""

from __future__ import annotations

from functools import partial

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

TASKS, NARROW, REPEATS = 10_000, 100, 2
MANY = 100_000
NAP = 0.05
NAPPERS, NAPS_REPEATS = TASKS, 3


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    rows = []
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True):
        _run(app, "wide", 1, 10)  # the pool's first connections
        works = {
            "100 of 100": partial(_seconds, app, "wide", TASKS // NARROW, NARROW),
            "one of 10,000": partial(_seconds, app, "wide", 1, TASKS),
        }
        found = in_turn(works, REPEATS)
        pairs = ratios(found, "one of 10,000", "100 of 100")
        rows.append(ratio_row("10,000 tasks in one process / in 100", pairs, "<= 2", medians(found, "s")))
        sizes = {"one of 10,000": TASKS, "one of 100,000": MANY}
        found = in_turn({name: partial(_seconds, app, "wide_in_parts", 1, size) for name, size in sizes.items()}, 1)
        pairs = [ratio * TASKS / MANY for ratio in ratios(found, "one of 100,000", "one of 10,000")]
        rows.append(ratio_row("a task of 100,000 in one process / of 10,000", pairs, "<= 2", medians(found, "s")))
    naps = {
        f"{slots} slots, {kind}": partial(_naps, stack, settings, app, slots, processes)
        for slots in (16, 64)
        for kind, processes in (("one", 1), ("100s", NAPPERS // NARROW))
    }
    found = in_turn(naps, NAPS_REPEATS)
    told = medians(found, "s")
    for slots in (16, 64):
        pairs = ratios(found, f"{slots} slots, one", f"{slots} slots, 100s")
        rows.append(ratio_row(f"10,000 tasks of 50 ms in one process / in 100, {slots} slots", pairs, "<= 1.2", told))
    pairs = ratios(found, "64 slots, one", "16 slots, one")
    rows.append(ratio_row("10,000 tasks of 50 ms in one process, 64 slots / 16", pairs, "<= 1", told))
    return rows


def _naps(stack: Stack, settings: Settings, app: Recovery, slots: int, processes: int) -> float:
    with workers.ours(stack, settings, 1, ["-c", str(slots)], beat=True):
        _run(app, "naps", 1, slots, 0.0)
        return _seconds(app, "naps", processes, NAPPERS // processes, NAP)


def _seconds(app: Recovery, kind: str, processes: int, tasks: int, *args: float) -> float:
    return workers.seconds(lambda: _run(app, kind, processes, tasks, *args))


def _run(app: Recovery, kind: str, processes: int, tasks: int, *args: float) -> None:
    started = [app.start(kind, tasks, *args) for _ in range(processes)]
    assert [app.result(process_id, timeout=600) for process_id in started] == [tasks] * processes
