"""The verdict of a demo: whatever was not as promised makes it a bad one, and is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recovery.demo.audit import Audit
from recovery.demo.demo_report import Counts, DemoReport, InjectedFaults, report
from recovery.records import ProcessState
from recovery.wfformat import Workflow
from recovery.wfformat.workload import Run

FINISHED = Run("p", Workflow(name="some", path=Path("some.json"), tasks=()), state=ProcessState.FINISHED)


def judged(run: Run = FINISHED, live_without_deadline: int = 0, **found: Any) -> DemoReport:
    audit = Audit(executions=1, **found)
    return report(
        [run],
        audit,
        Counts(),
        1.0,
        injected=InjectedFaults(seed=1, kills=0, by_kind={}, chaos=False),
        live_without_deadline=live_without_deadline,
    )


def test_all_is_as_promised() -> None:
    assert judged().good


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lost": {("p", "t"): "no line"}}, "lost: process p, t: no line"),
        ({"accepted_twice": {("p", "t"): "two values"}}, "accepted twice: process p, t: two values"),
        ({"live_without_deadline": 2}, "2 live records had no deadline"),
        ({"run": Run("p", FINISHED.workflow, state=ProcessState.BROKEN, error="no")}, "process p (some) is broken: no"),
        ({"run": Run("p", FINISHED.workflow)}, "process p (some) is running"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], said: str) -> None:
    found = judged(**wrong)
    assert not found.good
    assert any(said in problem for problem in found.problems), found.problems
