"""The ledger: lines of many writers, some of whom are killed while they write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recovery.demo import ledger
from recovery.demo.ledger import Line, Reader, append, read


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a ledger.jsonl"
    monkeypatch.setenv(ledger.VARIABLE, str(path))
    return path


def line(nonce: str) -> dict[str, object]:
    return {"process": "p", "id": "i", "task": "t", "nonce": nonce, "seen": {}}


def test_what_is_appended_is_read(path: Path) -> None:
    append(line("1"))
    append({"process": "p", "id": "c", "nonce": "2", "seen": {"t": "1"}, "final": True})
    assert read(path) == [Line("p", "i", "t", "1", {}), Line("p", "c", "", "2", {"t": "1"}, True)]


def test_without_a_ledger_nothing_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ledger.VARIABLE)
    append(line("1"))
    assert not path.exists()
    assert read(path) == []


def test_a_line_that_was_cut_off_spoils_none(path: Path) -> None:
    append(line("1"))
    with path.open("ab") as file:
        file.write(b"\n" + json.dumps(line("cut off")).encode()[:20])
    append(line("2"))
    assert [found.nonce for found in read(path)] == ["1", "2"]


def test_new_lines_only_and_whole_ones(path: Path) -> None:
    reader = Reader(path)
    assert reader.new_lines() == []
    append(line("1"))
    assert [found.nonce for found in reader.new_lines()] == ["1"]
    text = json.dumps(line("2")).encode()
    with path.open("ab") as file:
        file.write(b"\n" + text[:10])
    assert reader.new_lines() == []
    with path.open("ab") as file:
        file.write(text[10:] + b"\n")
    assert [found.nonce for found in reader.new_lines()] == ["2"]


def test_each_line_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of two writers never mix: the file is open for appending, and a line is written at once."""
    written: list[bytes] = []
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or write(fd, data))
    append(line("x" * 100_000))
    assert len(written) == 1
    assert read(path)[0].nonce == "x" * 100_000


@pytest.mark.usefixtures("path")
def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda _fd, data: len(data) - 1)
    with pytest.raises(OSError, match="disk"):
        append(line("1"))
