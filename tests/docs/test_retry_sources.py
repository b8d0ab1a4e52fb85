"""The rows of docs/retry-sources.md: the test that each names, and rows that would not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.retry_sources import PAGE, cells_of_tests, faults

GOOD = """
from tests.helper import AWAY

def failing(error):
    def step():
        raise error
    return step

def start(world, function, **settings):
    world.start(world.app.process("order", **settings)(function))
    world.pump()

def test_it(world):
    start(world, failing(AWAY))
"""
HELPER = "AWAY = ConnectionRefusedError()\n"
ROW = "`tests/test_planted.py::test_it`"
RETRY = "recovery.retry"


def test_each_row_names_a_test_in_which_an_actor_of_a_running_application_raises() -> None:
    found = {point: faults(cell, ROOT) for point, cell in cells_of_tests(PAGE.read_text(encoding="utf-8"))}
    assert {point: reasons for point, reasons in found.items() if reasons} == {}


def planted(folder: Path, source: str = GOOD, helper: str = HELPER) -> Path:
    """Return the root of a repository with one test module and a helper module."""
    tests = folder / "tests"
    tests.mkdir()
    (tests / "test_planted.py").write_text(source)
    (tests / "helper.py").write_text(helper)
    return folder


@pytest.mark.parametrize("cell", [ROW, f"{ROW}; also `tests/helper.py`, a delay", f"`tests/helper.py::AWAY`; {ROW}"])
def test_a_row_that_does(tmp_path: Path, cell: str) -> None:
    assert faults(cell, planted(tmp_path)) == []


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("`tests/test_planted.py`, a delay", "no test is named"),
        ("the same", "no test is named"),
        ("`tests/test_gone.py::test_it`", "tests/test_gone.py does not exist"),
        ("`tests/test_planted.py::test_gone`", "tests/test_planted.py has no test_gone"),
        (f"{ROW}, `tests/test_planted.py::test_gone`", "tests/test_planted.py has no test_gone"),
        (f"{ROW}; also `tests/test_gone.py`", "tests/test_gone.py does not exist"),
    ],
)
def test_a_row_that_does_not(tmp_path: Path, cell: str, reason: str) -> None:
    assert faults(cell, planted(tmp_path)) == [reason]


@pytest.mark.parametrize(
    ("was", "becomes", "reason"),
    [
        ("def start(", f"import {RETRY}\n\ndef start(", f"tests/test_planted.py imports {RETRY}"),
        ("    world.pump", f"    from {RETRY}.codes import X\n    world.pump", f"imports {RETRY}.codes.X"),
        ("def start(", f"from {'recovery'} import retry\n\ndef start(", f"tests/test_planted.py imports {RETRY}"),
        ("    world.pump", f"    import_module('{RETRY}')\n    world.pump", f"tests/test_planted.py imports {RETRY}"),
        ("raise error", "return error", "has no actor that raises"),
        ("start(world, failing(AWAY))", "start(world, print)\n    raise AWAY", "has no actor that raises"),
        ("start(world, failing(AWAY))", "failing(AWAY)", "registers no actor"),
        ("    world.pump()", "    world.process(1)", "runs nothing"),
    ],
)
def test_a_test_that_does_not(tmp_path: Path, was: str, becomes: str, reason: str) -> None:
    assert was in GOOD
    (found,) = faults(ROW, planted(tmp_path, GOOD.replace(was, becomes)))
    assert reason in found


def test_a_test_whose_helper_module_imports_from_inside_does_not(tmp_path: Path) -> None:
    planted(tmp_path, helper=f"from tests.other import X\n{HELPER}")
    (tmp_path / "tests" / "other.py").write_text(f"from {RETRY}.codes import X\n")
    assert faults(ROW, tmp_path) == [f"tests/other.py imports {RETRY}.codes.X"]
