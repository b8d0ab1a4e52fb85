"""One process with 10,000 parallel tasks, against 100 processes with 100 each: the cost per task."""

from __future__ import annotations

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, ratio_row

TASKS, NARROW, REPEATS = 10_000, 100, 2


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    one, many = [], []
    with workers.ours(stack, settings, 1, ["-c", "2"], beat=True):
        _run(app, 1, 10)  # the pool's first connections
        for _ in range(REPEATS):
            many.append(workers.seconds(lambda: _run(app, TASKS // NARROW, NARROW)))
            one.append(workers.seconds(lambda: _run(app, 1, TASKS)))
    ratios = [wide / narrow for wide, narrow in zip(one, many, strict=True)]
    detail = f"one of 10,000: {min(one):.1f} s, 100 of 100: {min(many):.1f} s (best of {REPEATS})"
    return [ratio_row("10,000 tasks in one process / in 100", ratios, "<= 2", detail)]


def _run(app: Recovery, processes: int, tasks: int) -> None:
    started = [app.start("wide", tasks) for _ in range(processes)]
    assert [app.result(process_id, timeout=600) for process_id in started] == [tasks] * processes
