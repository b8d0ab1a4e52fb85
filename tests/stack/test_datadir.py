"""A data directory is ours, of one version, and used by one at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recovery.errors import DataDirectoryError
from recovery.stack import datadir
from recovery.stack.datadir import MARKER, claimed


def claim(directory: Path, server: str = "mongod", version: str = "6.0") -> None:
    with claimed(directory, server, version):
        pass


def refusal(directory: Path, server: str = "mongod", version: str = "6.0") -> str:
    with pytest.raises(DataDirectoryError) as caught:
        claim(directory, server, version)
    return str(caught.value)


def test_new_directory_is_made_and_marked(tmp_path: Path) -> None:
    directory = tmp_path / "a new" / "folder"
    claim(directory)
    assert json.loads((directory / MARKER).read_text()) == {"server": "mongod", "version": "6.0"}
    (directory / "data").touch()
    claim(directory)


def test_foreign_directory_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    assert f"{tmp_path} is not empty and has no {MARKER}" in refusal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_other_version_is_refused_naming_both(tmp_path: Path) -> None:
    claim(tmp_path)
    assert f"{tmp_path} was written by mongod 6.0, and this is mongod 7.0" in refusal(tmp_path, version="7.0")


def test_other_server_is_refused_naming_both(tmp_path: Path) -> None:
    claim(tmp_path, "redis", "7")
    assert "was written by redis 7, and this is valkey 7" in refusal(tmp_path, "valkey", "7")


def test_claim_that_was_cut_off_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    claim(tmp_path)
    assert "mongod" in (tmp_path / MARKER).read_text()


@pytest.mark.parametrize("text", ["nonsense", "[1]", "{}"])
def test_marker_that_is_not_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER).write_text(text)
    assert "is not our marker" in refusal(tmp_path)


def test_used_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datadir, "_LOCKED_TIMEOUT", 0.05)
    with claimed(tmp_path, "mongod", "6.0"):
        assert f"{tmp_path} is in use by another mongod" in refusal(tmp_path)
    claim(tmp_path)


def test_file_in_the_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file can't be used: File exists" in refusal(tmp_path / "file")
