"""`recovery operation report`: all of it for programs and in files, the first for people, who are told of the rest."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery import Recovery, operations
from recovery.cli.operation_commands import write_file
from recovery.cli.output import stream_json
from recovery.records import OperationResult, ResultState
from recovery.records.operation_parts import result_id
from recovery.settings import Settings
from tests.cli import schemas
from tests.cli.command import ROOT, command, environment, recovery

MANY, DONE = 2500, 40


@pytest.fixture
def env(emptied: Settings) -> dict[str, str]:
    """With an operation that found many processes, and is done with some of them."""
    resources = Recovery(emptied).resources
    asked = operations.OperationRequest("check", everything=True)
    number = operations.start(resources, asked, "a test").id
    found = [
        OperationResult(
            id=result_id(number, f"p{place:05}"),
            operation=number,
            process=f"p{place:05}",
            type="order",
            state=ResultState.DONE if place < DONE else ResultState.FOUND,
            plan="nothing",
        )
        for place in range(MANY)
    ]
    resources.store.operation_results.insert(found)
    return {**emptied.environment(), "NUMBER": str(number)}


def report(env: dict[str, str], *options: str) -> str:
    done = recovery("operation", "report", env["NUMBER"], *options, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_json_has_all(env: dict[str, str]) -> None:
    found = schemas.read("operation report", report(env, "--json"))
    assert [one["process"] for one in found["results"]] == [f"p{place:05}" for place in range(MANY)]
    assert found["number"] == int(env["NUMBER"])
    for limit in (1, 1000, 1001, MANY + 1):
        some = schemas.read("operation report", report(env, "--json", "--limit", str(limit)))["results"]
        assert some == found["results"][:limit]
    done = schemas.read("operation report", report(env, "--json", "--state", "done"))["results"]
    assert [one["state"] for one in done] == ["done"] * DONE
    assert schemas.read("operation report", report(env, "--json", "--state", "error"))["results"] == []


@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_a_file_has_all(env: dict[str, str], tmp_path: Path, ending: str) -> None:
    to = tmp_path / f"report{ending}"
    assert report(env, "--to", str(to)) == f"2,500 results written to {to}\n"
    with to.open(newline="") as file:
        rows = list(csv.DictReader(file) if ending == ".csv" else map(json.loads, file))
    assert [row["process"] for row in rows] == [f"p{place:05}" for place in range(MANY)]


HOSTILE = ["=1+2", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\uff1d1", "|x", "a\x1b[2Jb", "a\r\nb", "\u202ex", "café"]
SHOWN = [
    *("'=1+2", "'+1", "'-1", "'@SUM(A1)", "\\t=1", "' =1", "'\uff1d1", "'|x", "a\\x1b[2Jb", "a\\r\\nb"),
    *("\\u202ex", "café"),
]


def test_a_csv_file_has_no_formulas_and_no_control_characters(emptied: Settings, tmp_path: Path) -> None:
    """Process types, plans and errors are what somebody else wrote."""
    resources = Recovery(emptied).resources
    operation = operations.start(resources, operations.OperationRequest("check", everything=True), "a test")
    found = [
        OperationResult(
            id=result_id(operation.id, f"p{place:02}"), operation=operation.id, process=f"p{place:02}", type=text,
            state=ResultState.ERROR, plan=text, error=text,
        )
        for place, text in enumerate(HOSTILE)
    ]  # fmt: skip
    resources.store.operation_results.insert(found)
    to = tmp_path / "report.csv"
    write_file(resources, operation, [], to, None)
    with to.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for column in ("type", "plan", "error"):
        assert [row[column] for row in rows] == SHOWN
    assert {row["operation"] for row in rows} == {"1"}, "no text of others"
    assert "\x1b" not in to.read_text() and len(to.read_text().splitlines()) == len(HOSTILE) + 1


@pytest.mark.thorough
def test_a_table_is_cut_and_says_so(env: dict[str, str]) -> None:
    lines = report(env).splitlines()
    assert len(lines) == 102 and lines[1].startswith("p00000") and lines[100].startswith("p00099")
    assert lines[-1] == "these are the first 100, and there are more: --to FILE and --json give all, --limit so many"
    assert report(env, "--limit", "7").splitlines()[-1].startswith("these are the first 7, and there are more")
    for all_of_it in (["--limit", str(MANY)], ["--state", "done"]):
        assert "there are more" not in report(env, *all_of_it)
    exactly = report(env, "--state", "done", "--limit", str(DONE)).splitlines()
    assert len(exactly) == DONE + 1 and "there are more" not in exactly[-1]


@pytest.mark.thorough
def test_what_nobody_reads_any_more_is_not_remarked(env: dict[str, str]) -> None:
    """As of `| head`, in the midst of it."""
    reads, writes = os.pipe()
    line = command("operation", "report", env["NUMBER"], "--json")
    with subprocess.Popen(line, env=environment(env), cwd=ROOT, stdout=writes, stderr=subprocess.PIPE) as asked:
        os.close(writes)
        assert os.read(reads, 10) == b'{"version"'
        os.close(reads)
        assert asked.stderr is not None and asked.stderr.read() == b""


def test_rows_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """A million of them are never held together."""

    def rows() -> Iterator[dict[str, int]]:
        yield {"row": 1}
        assert capsys.readouterr().out == '{"version": 1, "command": "c", "number": 3, "rows": [{"row": 1}'
        yield {"row": 2}

    stream_json("c", {"number": 3}, "rows", rows())
    assert capsys.readouterr().out == ', {"row": 2}]}\n'
