"""Traces of real workers, one of whose processes is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery import Recovery, Settings
from recovery.setting_forms import LogFormat
from recovery.stack import ChildProcess, Stack
from tests.cli.command import recovery
from tests.tracing import traced
from tests.tracing.conftest import Traces
from tests.tracing.exported import check_times, read, tree
from tests.waiting import wait_until
from tests.worker import telling

ROOT = Path(__file__).parents[2]


@pytest.mark.cluster
def test_a_process_with_children_a_retry_and_a_kill_is_one_trace(
    stack: Stack, settings: Settings, tmp_path: Path
) -> None:
    spans = tmp_path / "spans"
    # However slow the machine is: what is in hand does not count as lost.
    changes = {"log_format": LogFormat.JSON, "scan_interval": 0.2, "message_timeout": 60.0}
    env = settings.model_copy(update=changes).environment()
    env |= {"SPANS": str(spans), "SIGNS": str(tmp_path)}
    workers = [stack.start_worker(f"{traced.__name__}:app", concurrency=1, env=env) for _ in range(2)]
    stack.start_beat(f"{traced.__name__}:app", env=env)
    app, client = Recovery(settings), Traces()
    app.actors = traced.app.actors
    with client.on(), client.provider.get_tracer("web").start_as_current_span("POST /order"):
        process_id = app.start("order", "ring")
    wait_until(lambda: list(tmp_path.glob("packs-*")), 60, "the attempt that is to be killed")
    (sign,) = tmp_path.glob("packs-*")
    os.kill(int(sign.name.removeprefix("packs-")), signal.SIGKILL)
    assert app.result(process_id, timeout=60) == "ring"
    applied = "attempt pack #2"
    wait_until(lambda: "apply pack" in tree([*client.all(), *read(spans)]).get(applied, []), 10, "the last apply")
    found = [*client.all(), *read(spans)]
    assert {one.trace for one in found} == {client.all()[0].trace}
    assert {name: steps(under) for name, under in tree(found).items()} == {
        "": {"POST /order"},
        "POST /order": {"start order"},
        "start order": {"attempt order"},
        "attempt order": {"attempt weigh", "attempt weigh #2", "attempt pack", "attempt pack #2", "apply order"},
        "attempt weigh": {"on the scales"},
        "attempt weigh #2": {"on the scales #2", "apply weigh"},
        "attempt pack #2": {"apply pack"},
    }
    check_times(found)
    by_name = {name: sorted((one for one in found if one.name == name), key=lambda s: s.start) for name in
               ("attempt weigh", "attempt pack")}  # fmt: skip
    assert [(one.said("attempt"), one.said("outcome")) for one in by_name["attempt weigh"]] == [
        *((1, "retried"), (2, "finished")),
    ]
    lost, done = by_name["attempt pack"]
    assert (lost.said("outcome"), lost.said("lost")) == ("lost", "was ended by signal 9 (SIGKILL)")
    assert done.said("outcome") == "finished" and lost.end <= done.start + 1_500_000
    assert {one.said("process.id") for one in found if one.name.startswith("attempt")} == {process_id}
    logged = [json.loads(line) for worker in workers for line in worker.log.read_text().splitlines()]
    (weighed,) = (line for line in logged if line["message"] == "weighed ring")
    of_it = by_name["attempt weigh"][1]
    assert (weighed["trace"], weighed["span"], weighed["process"]) == (of_it.trace, of_it.id, process_id)


def steps(names: Iterable[str]) -> set[str]:
    """Names of spans but those of queues, which who runs it on the spot has not. What is applied may be so twice."""
    return {re.sub("^(apply .*) #.*", r"\1", name) for name in names if not name.startswith("queue ")}


def spans_of(worker: ChildProcess) -> Iterator[dict[str, Any]]:
    """What the SDK's exporter for consoles has written into a worker's log."""
    text, decoder = worker.log.read_text(), json.JSONDecoder()
    begins = text.find("{\n")
    while begins >= 0:
        try:
            found, ends = decoder.raw_decode(text, begins)
        except ValueError:
            ends = begins + 1
        else:
            yield found
        begins = text.find("{\n", ends)


@pytest.mark.cluster
@pytest.mark.parametrize("pool", ["prefork", pytest.param("threads", marks=pytest.mark.soak)])
def test_the_environment_switches_it_on(stack: Stack, settings: Settings, pool: str) -> None:
    """And spans that are not sent yet are when a worker is told to end."""
    env = settings.environment() | {"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_SCHEDULE_DELAY": "60000"}
    env |= {"OTEL_SERVICE_NAME": "shop"}
    worker = stack.start_worker(f"{telling.__name__}:app", concurrency=1, pool=pool, env=env)
    app = Recovery(settings)
    app.actors = telling.app.actors
    process_id = app.start("story")
    assert app.result(process_id, timeout=60) == "second"
    worker.stop(30)
    found = list(spans_of(worker))
    assert {"attempt story", "attempt tell"} <= {one["name"] for one in found}, worker.log.read_text()
    assert len({one["context"]["trace_id"] for one in found}) == 1
    assert {one["resource"]["attributes"]["service.name"] for one in found} == {"shop"}


def test_a_start_by_command_begins_the_trace(emptied: Settings) -> None:
    env = emptied.environment() | {"OTEL_TRACES_EXPORTER": "console", "RECOVERY_APP": f"{telling.__name__}:app"}
    done = recovery("start", "story", env=env)
    assert done.returncode == 0, done.stderr
    process = Recovery(emptied).resources.store.processes.get(done.stdout.split()[0])
    assert process is not None and process.trace is not None
    assert '"name": "start story"' in done.stdout and process.trace.trace_id in done.stdout


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.cluster
def test_without_the_extra_all_else_works(stack: Stack, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    env = settings.environment() | {"PYTHONPATH": path, "OTEL_TRACES_EXPORTER": "otlp"}
    worker = stack.start_worker(f"{telling.__name__}:app", concurrency=1, env=env)
    app, client = Recovery(settings), Traces()
    app.actors = telling.app.actors
    with client.on():  # whoever starts it may well trace
        process_id = app.start("story")
    assert app.result(process_id, timeout=60) == "second"
    assert "OTEL_TRACES_EXPORTER is set, and OpenTelemetry is not installed" in worker.log.read_text()
    assert "Traceback" not in worker.log.read_text()


@pytest.mark.cluster
def test_an_exporter_that_there_is_not_is_told_of(stack: Stack, settings: Settings) -> None:
    env = settings.environment() | {"OTEL_TRACES_EXPORTER": "nowhere"}
    worker = stack.start_worker(f"{telling.__name__}:app", concurrency=1, env=env)
    app = Recovery(settings)
    app.actors = telling.app.actors
    assert app.result(app.start("story"), timeout=60) == "second"
    assert "no traces: LookupError: no exporter 'nowhere'" in worker.log.read_text()
