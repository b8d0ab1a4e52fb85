"""The pages keep up with the code: tables, metrics, rules, links, and the examples that readers copy."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase
from rich.console import Console

from recovery import ProcessBroken, Recovery, Settings, metrics
from recovery.cli.start_commands import value
from recovery.demo.demo_report import DemoReport
from recovery.demo.screen import summary
from recovery.metrics.collectors import ServerCollector
from recovery.queue import Broker
from recovery.records import ActorPreferences, Operation, OperationKind, ProcessTypePreferences, ScannerRun, Schedule
from recovery.records.preferences import setting_names
from recovery.rules import Rule
from recovery.scan.census import CensusTaker
from recovery.stack import Stack
from recovery.store import Store
from tests.cli import schemas
from tests.docs import architecture, failure_map, field_rights, policy, reference, roles
from tests.docs.blocks import DOCS, PAGES, README, ROOT, Example, blocks, module, starts
from tests.metrics import alerts, panels
from tests.waiting import wait_until

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_each_field_that_a_client_can_write_has_a_word() -> None:
    """Of what comes of it."""
    page = field_rights.PAGE.read_text(encoding="utf-8")
    assert field_rights.made(page) == page, "run python -m tests.docs.field_rights"
    told = {(collection, name) for collection, names in field_rights.EFFECTS.items() for name in names}
    there = {(collection, field.strip("`")) for collection, field, _ in field_rights.fields()}
    assert told <= there, "of fields that there are no more"


def test_the_script_of_the_roles_is_made_from_the_code() -> None:
    assert roles.script() == roles.SCRIPT.read_text(), "run python -m tests.docs.reference"


@pytest.mark.parametrize("page", reference.PARTS)
def test_settings_pages_are_up_to_date(page: str) -> None:
    assert reference.written(page) == (DOCS / page).read_text(), "run python -m tests.docs.reference"


def test_every_setting_is_explained() -> None:
    grouped = [name for names in reference.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(Settings.model_fields)
    assert set(reference.REASONS) == set(Settings.model_fields)
    preferences = {*setting_names(ActorPreferences), *setting_names(ProcessTypePreferences)}
    assert set(reference.PREFERENCE_REASONS) == preferences


def test_every_metric_is_on_its_page_and_no_other(settings: Settings) -> None:
    """With its labels, as Prometheus names it."""
    found = {_exposed(value): set(value._labelnames) for value in vars(metrics).values() if _is_metric(value)}
    store = Store(settings)
    store.actors.save([ActorPreferences(id="some")])
    store.actors.block("some")
    store.process_types.save([ProcessTypePreferences(id="some", markers=True)])
    store.scanners.note(ScannerRun(id="some"), by_beat=True)
    store.schedules.insert(Schedule(id="some", type="some"))
    store.operations.insert(Operation(id=0, kind=OperationKind.CHECK, who="me", why="a test"), 60)
    assert CensusTaker(store).take_if_due()
    store.workers.note_spark()
    asked = ServerCollector(store, Broker(settings.broker_url), sweeps=True)
    found |= {_asked(metric): _labels(metric) for metric in asked.collect()}
    page = (DOCS / "metrics.md").read_text()
    rows = re.findall(r"^\| `(recovery_\w+)` \|([^|]*)\|", page, re.MULTILINE)
    told = {name: set(re.findall(r"(?:^|; )`(\w+)`", labels.strip())) for name, labels in rows}
    assert told == found
    queries = [*(rule["expr"] for rule in alerts.rules().values()), *(one.expr for one in panels.asked())]
    used = {name for query in queries for name in panels.metrics_of(query)}
    assert used <= found.keys()


def _is_metric(value: object) -> bool:
    return isinstance(value, MetricWrapperBase)


def _exposed(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else metric._name


def _asked(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _labels(metric: Metric) -> set[str]:
    return {label for sample in metric.samples for label in sample.labels}


def test_the_failure_map_is_what_the_rules_say() -> None:
    page = failure_map.PAGE.read_text()
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == list(Rule)
    assert page == failure_map.page(page), "run `python -m tests.docs.failure_map`"


def test_commands_that_print_an_operation_have_one_schema_of_it() -> None:
    wanted = schemas.operation_schemas()
    assert len(wanted) == 12
    wrong = [page.name for page, text in wanted.items() if page.read_text() != text]
    assert wrong == [], "run `python -m tests.cli.schemas`"


def test_the_architecture_is_what_the_imports_say() -> None:
    page = architecture.PAGE.read_text()
    assert page == architecture.page(page), "run `python -m tests.docs.architecture`"


def test_the_picture_leaves_out_what_follows() -> None:
    imports = {"cli": {"worker", "store", "pymongo"}, "worker": {"store"}, "store": {"pymongo"}}
    drawn = [("cli", "worker"), ("cli", "pymongo"), ("worker", "store"), ("store", "pymongo")]
    assert architecture.arrows(imports, architecture.order()) == drawn


def test_the_default_policy_is_shown_as_it_is() -> None:
    told = "run `python -m tests.docs.policy`"
    assert policy.PAGE.read_text() == policy.page(policy.PAGE.read_text()), told
    assert policy.PICTURE.read_text() == policy.picture(), told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page.name}: {link}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_pages_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


def test_the_demo_prints_what_the_readme_shows() -> None:
    """Its figures, in today's words."""
    (shown,) = blocks(README, "text")
    number = r"\d+(?:\.\d+)?"
    kills, seed = re.search(r"workers killed +(\d+) .*seed (\d+)", shown).groups()  # type: ignore[union-attr]
    requeued, p50, p99 = re.search(rf"tasks requeued +(\d+) +p50 ({number}) s, p99 ({number}) s", shown).groups()  # type: ignore[union-attr]
    seconds = re.search(rf"20 of 20 +in ({number}) s", shown)[1]  # type: ignore[index]
    applied, lost = re.search(r"decision not applied (\d+), worker lost (\d+)", shown).groups()  # type: ignore[union-attr]
    report = DemoReport(
        processes=20, finished=20, tasks=240, executions=240, requeued=int(requeued), stale_rejected=0, stale_results=0,
        accepted_twice=0, lost=0, wall_seconds=float(seconds), lag_p50=float(p50), lag_p99=float(p99), kills=int(kills),
        seed=int(seed), faults={}, repairs={"DECISION_NOT_APPLIED": int(applied), "WORKER_LOST": int(lost)},
        live_without_deadline=0,
    )  # fmt: skip
    console = Console(width=100, file=io.StringIO())
    with console.capture() as printed:
        console.print(summary(report))
    assert [line.strip() for line in printed.get().splitlines()] == [line.strip() for line in shown.splitlines()]


@pytest.mark.cluster
@pytest.mark.parametrize("page", [README, DOCS / "tutorial.md"], ids=lambda page: page.name)
def test_examples_do_what_the_page_says(page: Path, stack: Stack, settings: Settings, tmp_path: Path) -> None:
    """The page's application, on a real worker: each `recovery start` that waits ends as the page says."""
    source = module(page).replace("time.sleep(5)", "time.sleep(0.1)")
    (tmp_path / "orders.py").write_text(source)
    environment = settings.environment() | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    stack.start_worker("orders:app", concurrency=4, env=environment)
    stack.start_beat("orders:app", env=environment)
    app = Recovery(settings)
    app.actors = _namespace(source)["app"].actors
    wait_until(app.resources.store.workers.all, 60, "a worker")
    examples = starts(page)
    assert examples
    # All at once: they mostly sleep.
    for process_id, said in [(_start(app, example), example.output[-1]) for example in examples]:
        if said.startswith("error: "):
            with pytest.raises(ProcessBroken, match=re.escape(said.partition(", task ")[2].partition(": ")[2])):
                app.result(process_id, timeout=60)
        else:
            assert app.result(process_id, timeout=60) == json.loads(said)


def _namespace(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "orders"}
    exec(source, names)
    return names


def _start(app: Recovery, example: Example) -> str:
    _, _, process_type, *rest = shlex.split(example.command)
    return app.start(process_type, *(value(argument) for argument in rest[: rest.index("--wait")]))
