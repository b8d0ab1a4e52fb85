"""What a drill prints, and what it counts."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from recovery.cli.drill_commands import show, show_line
from recovery.drill.drill_report import DrillReport, Taker, measured
from recovery.drill.sightings import Probe, Step, promised
from recovery.settings import Settings
from tests.cli import schemas


def report(*seconds: float | None, step: Step = Step.DELAY) -> DrillReport:
    promises = {one: promised(one, Settings()) for one in Step}
    return DrillReport(
        drill="d1",
        processes=2,
        seconds=5.0,
        steps=measured([Probe(step, "P", "T", one) for one in seconds], promises),
        workers=[Taker("one@h", True, 2, killed=True), Taker("two@h", True, 0), Taker("mail@h", False, 0)],
        left=1,
        notes=["killed_slot was not tried: its pool is of threads"],
    )


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show(report(0.012, 2.5, None), json=False)
    header, row, *remarks = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line]
    assert header == "step probes median longest promised outcome made of"
    assert row == "delay 3 1.3s 2.5s 2.0s failed scan_interval and a moment"
    assert remarks == [
        "1 of 3 workers took part",
        "one@h was killed; start it again, if nothing else does",
        "two@h took no canary: are its slots busy?",
        "mail@h does not serve recovery.canary (RECOVERY_CANARY is off)",
        "killed_slot was not tried: its pool is of threads",
        "1 canary was not removed; a later drill removes it",
        "delay: 1 of 3 came late, 1 of 3 did not come",
        "A promise was broken.",
    ]


def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(0.5), json=False)
    assert capsys.readouterr().out.splitlines()[-1].strip() == "Every promise was kept."


def test_a_line_of_a_probe(capsys: pytest.CaptureFixture[str]) -> None:
    show_line(report(0.5))
    show_line(report(3.0))
    kept, broken = capsys.readouterr().out.splitlines()
    assert kept.endswith("kept  delay 500ms")
    assert broken.endswith("broken  delay 3.0s, delay: 1 of 1 came late")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(0.5, None), json=True)
    found = schemas.read("drill", capsys.readouterr().out)
    assert (found["good"], found["steps"][0]["failed"], found["left"]) == (False, 1, 1)


def test_what_is_counted() -> None:
    def counted(outcome: str) -> float:
        labels = {"step": "killed_worker", "outcome": outcome}
        return REGISTRY.get_sample_value("recovery_drill_probes_total", labels) or 0

    def seconds() -> float:
        return REGISTRY.get_sample_value("recovery_drill_seconds_sum", {"step": "killed_worker"}) or 0

    before, longer = {one: counted(one) for one in ("ok", "late", "failed")}, seconds()
    report(2.0, 9.9, 10.5, None, step=Step.KILLED_WORKER).count()
    assert {one: counted(one) - before[one] for one in before} == {"ok": 2, "late": 1, "failed": 1}
    assert seconds() - longer == pytest.approx(22.4)
