"""The streams of a worker: what is written to them is logged, and they are files to those who ask."""

from __future__ import annotations

import faulthandler
import io
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.worker.logs import LoggedStream


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stdout"


@pytest.fixture
def stream(path: Path) -> Iterator[LoggedStream]:
    with path.open("w") as original:
        yield LoggedStream(logging.getLogger("test.streams"), "WARNING", original)


def test_what_is_written_is_logged_as_text_and_as_bytes(stream: LoggedStream, caplog: pytest.LogCaptureFixture) -> None:
    print("packing", file=stream)
    assert stream.buffer.write("täglich\n".encode(stream.encoding)) == 9
    stream.buffer.write(b"\xff\n")
    stream.buffer.flush()
    assert [record.getMessage() for record in caplog.records] == ["packing", "täglich", "\ufffd"]


def test_a_subprocess_and_faulthandler_write_where_the_worker_does(stream: LoggedStream, path: Path) -> None:
    subprocess.run(["echo", "packed"], stdout=stream, check=True)
    faulthandler.dump_traceback(stream)
    assert path.read_text().startswith("packed\n") and "most recent call first" in path.read_text()
    assert stream.buffer.fileno() == stream.fileno()


def test_a_worker_without_a_stdout_has_no_descriptor_of_it() -> None:
    stream = LoggedStream(logging.getLogger("test.streams"), "WARNING", None)
    with pytest.raises(io.UnsupportedOperation, match="this worker has no such stream"):
        stream.fileno()
