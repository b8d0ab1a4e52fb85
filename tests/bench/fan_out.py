"""Fan-out and join: 10,000 tasks that do nothing and one that waits for them all, against Celery's `chord` of a `group`
with its Redis backend; in one process, and in 100 of 100.

Both on one worker of two processes. Each value of ours is in MongoDB by majority and journal, and so is the end of the
process; Celery's are in Redis' memory, and a worker that is killed leaves a chord that waits for ever.
"""

from __future__ import annotations

from typing import Any

from celery import chord as celery_chord
from celery import group as celery_group

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

TASKS, NARROW, REPEATS, WARM_UP = 10_000, 100, 3, 10
TWO = ["-c", "2"]


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    found = []
    for title, tasks in (("one process of 10,000", TASKS), ("100 processes of 100", NARROW)):

        def plain(tasks: int = tasks) -> float:
            with workers.plain(stack, settings, 1, TWO):
                _plain(1, WARM_UP)
                return TASKS / workers.seconds(lambda: _plain(TASKS // tasks, tasks))

        def ours(tasks: int = tasks) -> float:
            with workers.ours(stack, settings, 1, TWO):
                _ours(app, 1, WARM_UP)
                return TASKS / workers.seconds(lambda: _ours(app, TASKS // tasks, tasks))

        speeds = in_turn({"Celery": plain, "ours": ours}, REPEATS)
        name = f"fan-out and join, {title} / Celery's chord"
        found.append(ratio_row(name, ratios(speeds, "ours", "Celery"), ">= 1", medians(speeds, "tasks/s")))
    return found


def _ours(app: Recovery, processes: int, tasks: int) -> None:
    started = [app.start("wide", tasks) for _ in range(processes)]
    assert [app.result(process_id, timeout=300) for process_id in started] == [tasks] * processes


def _plain(processes: int, tasks: int) -> None:
    step: Any = apps.plain_step
    joined: Any = apps.plain_count
    started = [celery_chord(celery_group(step.s() for _ in range(tasks)))(joined.s()) for _ in range(processes)]
    assert workers.plain_results(started, timeout=300) == [tasks] * processes
