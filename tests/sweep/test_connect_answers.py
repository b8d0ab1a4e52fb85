"""What comes back through Spark Connect is data: its server, which may be somebody else's, runs nothing here by it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from recovery.errors import SweepFailed
from recovery.settings import Settings
from recovery.sweep.job import Work, Worked, _by_rows, _Rows

COUNTED = {
    ("recovery_repairs_total", (("actor", "a"), ("rule", "DUE"), ("source", "operation"))): 3.0,
    ("recovery_push_failures_total", ()): 0.5,
}


class Payload:
    """What makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._file),)


class Answers:
    """A session whose server answers every question with these rows."""

    def __init__(self, *worked: object) -> None:
        self._rows = [type("Row", (), {"worked": one})() for one in worked]

    def range(self, *_: int) -> Answers:
        return self

    def mapInArrow(self, *_: object) -> Answers:
        return self

    def collect(self) -> list[Any]:
        return self._rows


@pytest.mark.parametrize("error", [None, "MongoDB is away"])
def test_what_executors_tell_comes_back_as_it_was(error: str | None) -> None:
    assert Worked.from_text(Worked(COUNTED, error).to_text()) == Worked(COUNTED, error)


def test_a_pickle_is_not_loaded(settings: Settings, tmp_path: Path) -> None:
    payload = pickle.dumps(Payload(tmp_path / "made"))
    for answer in (payload, bytearray(payload), payload.decode("latin-1")):
        with pytest.raises(SweepFailed, match="not from our executors"):
            _by_rows(Answers(answer), 1, Work(settings, 1, "driver"))  # type: ignore[arg-type]
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "answer",
    [
        *("", "[]", "null", '{"counted": []}', '{"counted": {}, "error": null}', '{"counted": [1], "error": null}'),
        *('{"counted": [["x", {}, NaN]], "error": null}', '{"counted": [["x", [], 1]], "error": 3}', "[" * 100_000),
        f'{{"counted": [["x", {{}}, {10**400}]], "error": null}}',
        None,
    ],
)
def test_an_answer_of_another_form_fails_the_job(settings: Settings, answer: str | None) -> None:
    with pytest.raises(SweepFailed, match="not from our executors"):
        _by_rows(Answers(answer), 1, Work(settings, 1, "driver"))  # type: ignore[arg-type]


def test_executors_answer_in_this_form(settings: Settings) -> None:
    """No operation has the number, so they find nothing to do."""
    rows = pyarrow.RecordBatch.from_pydict({"id": [0, 1]})
    (batch,) = _Rows(Work(settings, 404, "driver"))([rows])
    assert batch.schema == pyarrow.schema([("worked", pyarrow.string())])
    told = batch.column("worked").to_pylist()
    assert _by_rows(Answers(*told), 2, Work(settings, 404, "driver")) == [Worked({}), Worked({})]  # type: ignore[arg-type]
