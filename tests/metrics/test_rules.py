"""The files of Prometheus and Alertmanager: every alert says how bad it is and what to do, and Prometheus's own tools
find that it fires in its scenario, and none on a healthy cluster."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import DOCS, PAGES, ROOT
from tests.metrics.alerts import RULES, rules

PROMETHEUS, ALERTMANAGER = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
SCENARIOS = sorted((PROMETHEUS / "tests").glob("*.yml"))
SEVERITIES = {"page", "ticket", "info"}
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus's promtool is not installed")
needs_amtool = pytest.mark.skipif(shutil.which("amtool") is None, reason="Alertmanager's amtool is not installed")


@functools.cache
def scenarios() -> list[dict[str, Any]]:
    """All scenarios."""
    return [test for file in SCENARIOS for test in yaml.safe_load(file.read_text())["tests"]]


def section(alert: str) -> str:
    """What the runbook says of it."""
    page = (DOCS / "runbooks.md").read_text()
    found = re.search(rf"^### {alert}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"docs/runbooks.md has no section {alert}"
    return found[1]


@pytest.mark.parametrize("alert", rules())
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: str) -> None:
    rule = rules()[alert]
    assert alert.startswith("Recovery")  # a dashboard counts those that fire by that
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == (
        f"{{{{ $externalLabels.recovery_docs }}}}/runbooks.md#{alert.lower()}"
    )
    meaning, look, do = re.split(r"^- \*\*(?:Look at|Do):\*\*", section(alert), maxsplit=2, flags=re.MULTILINE)
    assert meaning.strip() and look.strip() and do.strip()


@pytest.mark.parametrize("alert", rules())
def test_an_alert_has_a_scenario(alert: str) -> None:
    """In which it does not fire, and then does."""
    expected = [
        bool(one["exp_alerts"])
        for test in scenarios()
        for one in test.get("alert_rule_test", [])
        if one["alertname"] == alert
    ]
    assert expected == [False, True]


def test_no_runbook_is_of_an_alert_that_there_is_not() -> None:
    assert sorted(re.findall(r"^### (\w+)$", (DOCS / "runbooks.md").read_text(), re.MULTILINE)) == sorted(rules())


def test_the_page_lists_them_by_severity() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\[.*) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    told = {f"Recovery{name}": severity for severity, cell in rows for name in re.findall(r"\[(\w+)\]", cell)}
    assert told == {alert: rule["labels"]["severity"] for alert, rule in rules().items()}


def test_the_healthy_cluster_has_every_metric_that_alerts_ask_for() -> None:
    """Else that none fires there would prove nothing."""
    (healthy,) = [test for test in scenarios() if test["name"].startswith("healthy")]
    given = {re.split(r"[{]", series["series"])[0] for series in healthy["input_series"]}
    # Of these nothing is exported unless somebody blocked an actor.
    wanted = {name for rule in rules().values() for name in re.findall(r"\brecovery_[a-z_]+\b|\bup\b", rule["expr"])}
    assert wanted - given == {"recovery_blocked_seconds"}


@needs_promtool
@pytest.mark.parametrize("what", ["rules", "config"])
def test_prometheus_takes_the_files(what: str) -> None:
    file = RULES if what == "rules" else PROMETHEUS / "prometheus.yml"
    done = tool("promtool", "check", what, str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_alerts_fire_in_their_scenarios_only(file: Path) -> None:
    done = tool("promtool", "test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_amtool
def test_alertmanager_takes_its_file() -> None:
    done = tool("amtool", "check-config", str(ALERTMANAGER))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_amtool
@pytest.mark.parametrize(("severity", "receiver"), [("page", "on-call"), ("ticket", "tickets"), ("info", "nobody")])
def test_each_severity_goes_its_way(severity: str, receiver: str) -> None:
    done = tool("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", f"severity={severity}")
    assert done.stdout.strip() == receiver


def tool(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_pages_name_no_alert_that_there_is_not() -> None:
    named = {name for page in PAGES for name in re.findall(r"\bRecovery[A-Z][a-z]\w+", page.read_text())}
    assert named - rules().keys() <= {"RecoveryError"}
