"""Grafana's dashboards: what is checked in is what the code builds, every panel explains itself, and every query is one
that Prometheus takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana.dashboards import BOARDS
from deploy.grafana.dashboards.build import encoded
from deploy.grafana.dashboards.model import Board, Site, Unit
from tests.docs.blocks import ROOT
from tests.metrics.alerts import rules
from tests.metrics.panels import JSON, asked, boards, concrete, metrics_of, panels

PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
UNITS = {"s", "short", "cps", "percentunit"}
ALL_PANELS = [(uid, panel) for uid, board in boards().items() for panel in panels(board)]
each_panel = pytest.mark.parametrize(
    ("uid", "panel"), ALL_PANELS, ids=[f"{uid} {panel['title']}" for uid, panel in ALL_PANELS]
)
FEW = {"rule", "reason", "outcome", "state", "record", "scanner", "result", "step", "why", "version", "kind", "le"}
"""Labels of which there are few values, as docs/metrics.md has them."""


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_what_is_checked_in_is_what_the_code_builds(board: Board) -> None:
    assert (JSON / f"{board.uid}.json").read_text() == encoded(board, Site()), "run `make dashboards`"


def test_no_other_is_checked_in() -> None:
    assert sorted(boards()) == sorted(board.uid for board in BOARDS)
    assert sorted(file.stem for file in JSON.iterdir()) == sorted(boards())


@each_panel
def test_a_panel_explains_itself(uid: str, panel: dict[str, Any]) -> None:
    """A sentence, a unit, and where to go on: to another dashboard that there is."""
    assert re.match(r"[A-Z0-9`].{20,}[.)`]$", panel["description"], re.DOTALL), panel["description"]
    shown = panel["fieldConfig"]["defaults"]
    assert shown["unit"] in UNITS and shown.get("max") == (1 if shown["unit"] == Unit.SHARE else None)
    (link,) = panel["links"]
    (leads,) = re.findall(r"^/d/([\w-]+)\?", link["url"])
    assert leads in boards() and leads != uid
    assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_panels_lie_beside_each_other() -> None:
    """Within the 24 columns, none upon another, each with a number of its own."""
    for board in boards().values():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
            taken |= cells
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_a_variable_that_is_asked_with_is_there() -> None:
    for one in asked():
        there = {variable["name"] for variable in boards()[one.board]["templating"]["list"]}
        used = set(re.findall(r"\$(\w+)", one.expr)) - {"__rate_interval", "__range"}
        assert used <= there, one


def test_series_have_names_and_their_number_has_a_bound() -> None:
    """By labels of which there are few, or only the largest."""
    for one in asked():
        grouped = {label.strip() for labels in re.findall(r" by \(([^)]*)\)", one.expr) for label in labels.split(",")}
        shown = set(re.findall(r"\{\{(\w+)\}\}", one.legend))
        assert shown <= grouped, one
        if not re.match(r"(?:topk|bottomk)\(10, |sum\(|max\(|min\(|count\(", one.expr):
            assert grouped and grouped <= (FEW | {"operation"} if "operations_total" in one.expr else FEW), one


def test_runbooks_are_linked_where_there_is_an_address() -> None:
    """Of alerts that there are; and the console only where it has one."""
    site = Site("https://wiki.example/recovery", "https://console.example")
    named = {panel.runbook for board in BOARDS for section in board.sections for panel in section.panels} - {""}
    assert named <= set(rules())
    text = "".join(encoded(board, site) for board in BOARDS)
    linked = set(re.findall(r"https://wiki\.example/recovery/runbooks\.md#(\w+)", text))
    assert linked == {alert.lower() for alert in named}
    assert "https://console.example" in text
    assert "Console" not in "".join(encoded(board, Site()) for board in BOARDS)


def test_grafana_is_told_where_they_are() -> None:
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "recovery.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    every = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == every


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus's promtool is not installed")
def test_prometheus_takes_every_query(tmp_path: Path) -> None:
    """Each as a rule that records it."""
    recorded = [{"record": f"panel:{n}", "expr": concrete(one.expr)} for n, one in enumerate(asked())]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "queries.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(recorded)} rules found" in done.stdout


def test_metrics_are_read_out_of_a_query() -> None:
    assert metrics_of("sum(rate(recovery_scan_seconds_bucket[5m])) / recovery_markers{type='a'}") == {
        "recovery_scan_seconds",
        "recovery_markers",
    }
