"""The log of a worker whose settings say JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recovery import Recovery, Settings
from recovery.setting_forms import LogFormat
from recovery.stack import ChildProcess, Stack
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.waiting import wait_until
from tests.worker import telling


def lines(worker: ChildProcess) -> list[dict[str, Any]]:
    """All lines of its log, each of which has to be one of JSON."""
    return [json.loads(line) for line in worker.log.read_text().splitlines()]


@pytest.mark.cluster
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_each_line_says_what_it_is_of(stack: Stack, settings: Settings, pool: str) -> None:
    in_json = settings.model_copy(update={"log_format": LogFormat.JSON})
    worker = stack.start_worker(
        f"{telling.__name__}:app", concurrency=1, pool=pool, log_level="debug", env=in_json.environment()
    )
    app = Recovery(settings)
    app.actors = telling.app.actors
    told, refused, long = (app.start(name) for name in ("story", "refusal", "long_story"))
    for process_id in (told, long):
        app.result(process_id, timeout=60)
    ended = app.resources.store.processes.ended
    wait_until(lambda: ended([refused])[refused].ended_at, 30, "the end of the other")
    wait_until(
        lambda: worker.log.read_text().count(" attempt 1: ") >= 8, 10, "seven ends, and why one is not tried again"
    )
    log = lines(worker)

    def of(logger: str, message: str) -> dict[str, Any]:
        (line,) = (line for line in log if line["logger"] == logger and message in line["message"])
        return line

    decisions = {one["_id"]: one for one in app.resources.store.database["decisions"].find()}
    tells = {json.loads(one["outcome"]["value"]): key for key, one in decisions.items() if one["actor"] == "tell"}
    for text in ("first", "second"):
        process_id, task = tells[text].split("/")
        for logger in ("somebodys.own", "somebodys.task", "celery.redirected"):
            line = of(logger, f"{text} by ")
            assert (line["process"], line["task"], line["actor"], line["attempt"]) == (process_id, task, "tell", 1)
    at_length = of("somebodys.own", "two")
    assert at_length["message"] == "two\nlines, \x1b[31mred"
    assert at_length["extra"] == {"weight": 3, "of": "{'kg'}", "ratio": "nan"}
    failure = of("somebodys.own", "it failed")
    assert failure["actor"] == "tell_at_length" and failure["process"] == long
    assert failure["exception"].endswith("ValueError: a cause\nof two lines")
    ends = {(line["process"], line["task"]) for line in log if " attempt 1: f" in line["message"]}
    assert ends == {tuple(key.split("/")) for key in decisions}, "what the engine says of an attempt has its fields"
    refusal = of("recovery.engine.run.retrying", "not today")
    assert refusal["process"] == refused and refusal["extra"]["error_kind"] == "ValueError"
    assert "process" not in of("celery.apps.worker", " ready.")


@pytest.mark.cluster
def test_a_beat_logs_so_as_well(stack: Stack, settings: Settings) -> None:
    away = settings.model_copy(update={"log_format": LogFormat.JSON, "broker_url": "redis://127.0.0.1:1/0"})
    beat = stack.start_beat(f"{telling.__name__}:app", env=away.environment())
    wait_until(lambda: len(beat.log.read_text().splitlines()) > 0, 30, "what it says of Redis that is away")
    assert all(line["level"] in ("ERROR", "WARNING", "CRITICAL") for line in lines(beat))
