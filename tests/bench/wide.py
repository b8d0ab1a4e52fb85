"""One process with 10,000 parallel tasks, against 100 processes with 100 each: the cost per task."""

from __future__ import annotations

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

TASKS, NARROW, REPEATS = 10_000, 100, 2


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True):
        _run(app, 1, 10)  # the pool's first connections
        works = {
            "100 of 100": lambda: workers.seconds(lambda: _run(app, TASKS // NARROW, NARROW)),
            "one of 10,000": lambda: workers.seconds(lambda: _run(app, 1, TASKS)),
        }
        found = in_turn(works, REPEATS)
    pairs = ratios(found, "one of 10,000", "100 of 100")
    return [ratio_row("10,000 tasks in one process / in 100", pairs, "<= 2", medians(found, "s"))]


def _run(app: Recovery, processes: int, tasks: int) -> None:
    started = [app.start("wide", tasks) for _ in range(processes)]
    assert [app.result(process_id, timeout=600) for process_id in started] == [tasks] * processes
