"""A beat while Redis is away: it says so once, and once that it is over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import redis

from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP
from recovery.settings import Settings
from recovery.stack.servers import Valkey
from recovery.worker.celery_config import configuration
from tests.cli.command import ROOT, command, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.thorough

APP = "tests.cli.shop:app"


def test_an_outage_is_two_lines(settings: Settings, tmp_path: Path) -> None:
    valkey, log = Valkey(tmp_path / "valkey", tmp_path / "valkey.log"), tmp_path / "beat.log"
    valkey.start()
    env = settings.environment() | {"RECOVERY_BROKER_URL": valkey.url, "RECOVERY_SCAN_INTERVAL": "0.1"}
    options = command("beat", "--app", APP, "--loglevel", "debug")
    with (
        log.open("w") as out,
        subprocess.Popen(options, env=environment(env), cwd=ROOT, stdout=out, stderr=out) as beat,
    ):
        try:
            with redis.Redis.from_url(valkey.url) as broker:
                wait_until(lambda: broker.llen(NUDGE), 30, "a nudge")
            valkey.kill()
            wait_until(lambda: log.read_text().count("was not sent again") >= 3, 60, "nudges that were not sent")
            valkey.start()
            wait_until(lambda: "messages are sent again" in log.read_text(), 30, "the end of the outage")
        finally:
            beat.kill()
            valkey.stop()
    lines = log.read_text().splitlines()
    (said,) = (line for line in lines if "ERROR" in line)
    assert "Couldn't apply scheduled task nudge: " in said and "logs when one is sent" in said
    assert not any("Traceback" in line for line in lines)


def test_celerys_own_beat_has_it(settings: Settings) -> None:
    assert configuration(settings, [])["beat_scheduler"] == "recovery.worker.beat:QuietScheduler"


def test_a_sweep_is_sent_only_if_it_is_wanted_and_as_it_is_wanted(settings: Settings) -> None:
    sent = configuration(settings.model_copy(update={"scan_interval": 2.0}), [])["beat_schedule"]
    assert {name: entry["schedule"] for name, entry in sent.items()} == {"nudge": 2.0, "sweep": 60.0}
    assert sent["sweep"]["kwargs"]["every"] == 86_400.0, "a day by default"
    never = configuration(settings.model_copy(update={"sweep_interval": 0.0, "scan_interval": 2.0}), [])
    assert {name: entry["schedule"] for name, entry in never["beat_schedule"].items()} == {"nudge": 2.0}
    wanted = settings.model_copy(update={"sweep_interval": 3600.0, "sweep_repair": True})
    sweep = configuration(wanted, [])["beat_schedule"]["sweep"]
    assert (sweep["task"], sweep["schedule"], sweep["kwargs"]) == (SWEEP, 60.0, {"repair": True, "every": 3600.0})
    assert sweep["options"] == {"queue": SPARK_QUEUE, "expires": 60.0}, "two that wait are one too many"
    reporting = configuration(wanted.model_copy(update={"sweep_repair": False}), [])["beat_schedule"]["sweep"]
    assert reporting["kwargs"] == {"repair": False, "every": 3600.0}
    often = configuration(wanted.model_copy(update={"sweep_interval": 2.0}), [])["beat_schedule"]["sweep"]
    assert (often["schedule"], often["kwargs"]["every"]) == (2.0, 2.0)
