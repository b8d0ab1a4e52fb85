"""What `make bench` tells, and with which exit code; not what it measures."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench import __main__ as bench
from tests.bench.rows import Row, medians, ratio_row, row, unmet
from tests.bench.turns import in_turn, ratios

FAST = row("requeue / one by one", 20.0, ">= 15", "ratio")
SLOW = row("lag of a requeue", 2.5, "<= 2", "intervals")
WITHOUT_BAR = row("start of Spark", 9.0, "", "s")


@pytest.mark.parametrize(("rows", "code"), [([FAST, WITHOUT_BAR], 0), ([FAST, SLOW, WITHOUT_BAR], 1)])
def test_an_unmet_bar_is_named_and_an_error(
    rows: list[Row], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[str]()
    monkeypatch.setattr(bench, "measure", lambda names, _console: asked.extend(names) or rows)
    monkeypatch.chdir(tmp_path)
    assert bench.main(["requeue"]) == code
    assert asked == ["requeue"]
    assert json.loads(Path("bench.json").read_text()) == rows
    assert ("not met: lag of a requeue is 2.50, not <= 2" in capsys.readouterr().out) == bool(code)


def test_an_unknown_name_runs_nothing() -> None:
    with pytest.raises(SystemExit, match="no benchmark is named nothing; there are: reads,"):
        bench.main(["nothing", "requeue"])


def test_one_that_fails_is_told_and_the_others_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = bench.measure(["no_such", "no_other"], Console(width=160))
    assert [(one["name"], one["met"]) for one in found] == [("no_such: errors", False), ("no_other: errors", False)]
    assert "ModuleNotFoundError: No module named 'tests.bench.no_such'" in found[0]["detail"]
    assert "Traceback" in capsys.readouterr().err
    # As a command the main module has another name, by which no other process finds what is in it.
    assert bench.measure_one.__module__ == "tests.bench.one"


def test_each_can_be_run() -> None:
    """They run seldom: what they import may have got another name."""
    for name in bench.ALL:
        assert callable(importlib.import_module(f"tests.bench.{name}").run)


def test_bars() -> None:
    assert unmet([row("a", 2.0, "<= 2", "s"), row("b", 15.0, ">= 15", "s"), WITHOUT_BAR]) == []
    assert len(unmet([row("a", 2.01, "<= 2", "s"), row("b", 14.9, ">= 15", "s")])) == 2


def test_the_order_is_turned_round_and_medians_stand_beside_medians() -> None:
    order, takes = list[str](), iter([1.0, 2.0, 8.0, 4.0, 3.0, 3.0])

    def measured(name: str) -> float:
        order.append(name)
        return next(takes)

    found = in_turn({"ours": lambda: measured("ours"), "bare": lambda: measured("bare")}, 3)
    assert order == ["ours", "bare", "bare", "ours", "ours", "bare"]
    assert found == {"ours": [1.0, 4.0, 3.0], "bare": [2.0, 8.0, 3.0]}
    assert ratios(found, "ours", "bare") == [0.5, 0.5, 1.0]
    told = ratio_row("ours / bare", ratios(found, "ours", "bare"), ">= 0.4", medians(found, "s"))
    assert told["value"] == 0.5
    assert "ours 3 s, bare 3 s (medians of 3)" in told["detail"]
