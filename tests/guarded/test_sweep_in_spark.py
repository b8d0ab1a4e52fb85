"""A sweep in Spark that comes to MongoDB by its certificate alone: it does all that it is for, and no page of Spark's,
no plan, no command line and no file that others may read has a password."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recovery.stack.server_process import HOST, free_port
from tests.cli.command import ROOT, environment, recovery
from tests.guarded.authority import Authority
from tests.guarded.marks import Mark, find
from tests.guarded.places import ProcessList, of_mongodb
from tests.guarded.servers import DATABASE, SWEEP, Servers
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]
PAGES = (
    "",
    "jobs/",
    "stages/",
    "storage/",
    "environment/",
    "executors/",
    "SQL/",
    "executors/threadDump/?executorId=driver",
)
OF_EACH = ("jobs/job/?id={0}", "stages/stage/?id={0}&attempt=0", "SQL/execution/?id={0}")
REST = (
    "",
    "/environment",
    "/executors",
    "/allexecutors",
    "/jobs",
    "/stages?details=true",
    "/sql?details=true",
    "/storage/rdd",
)


class Files:
    """What Spark keeps on the disk while it runs: broadcasts are files, and hold the settings of a sweep."""

    def __init__(self, folder: Path, marks: list[Mark]) -> None:
        self._folder, self._marks, self._ends = folder, [mark.text.encode() for mark in marks], threading.Event()
        self.guarded: set[str] = set()
        """Files with a mark that nobody but their user may read."""
        self.open: set[str] = set()
        """And those that others may."""
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(0.05):
            for path in self._folder.rglob("*"):
                with suppress(OSError):  # it is gone again
                    if path.is_file() and self._has_mark(path.read_bytes()):
                        (self.open if self._is_open(path) else self.guarded).add(str(path))

    def _has_mark(self, text: bytes) -> bool:
        return any(mark in text for mark in self._marks)

    def _is_open(self, path: Path) -> bool:
        if not path.stat().st_mode & 0o044:
            return False
        return all(one.stat().st_mode & 0o011 for one in path.parents if self._folder in one.parents)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Servers]:
    """Of their own: in those that all share there is what others have planted."""
    made = Servers(tmp_path_factory.mktemp("swept"), authority)
    yield made
    made.stop()


@contextmanager
def sweeping(servers: Servers, folder: Path, *planted: str) -> Iterator[tuple[dict[str, bytes], Files]]:
    """What can be read of a Spark that has swept."""
    folder.mkdir()
    folder.chmod(0o755)
    port, processes = free_port(), ProcessList()
    processes.start()
    marks = list(servers.marks.values())
    files = Files(folder, marks)
    local = {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}"}
    env = environment(servers.environment(SWEEP, **local))
    command = [sys.executable, "-m", "tests.guarded.sweeping", str(port), *planted]
    said = folder.with_suffix(".log")
    with (
        said.open("wb") as log,
        subprocess.Popen(command, env=env, cwd=ROOT, stdin=-1, stdout=log, stderr=subprocess.STDOUT) as spark,
    ):
        try:
            ready = re.compile(r"^ready (\d)$", re.MULTILINE)
            wait_until(lambda: ready.search(said.read_text()) or spark.poll() is not None, 180, "a sweep")
            done = ready.search(said.read_text())
            assert done is not None and done[1] == "0", said.read_text()
            places = pages(port)
            spark.communicate(b"\n", timeout=60)
        finally:
            spark.kill()
            processes.stop()
            files.stop()
    places |= {"said": said.read_bytes(), "process list": processes.text()}
    with servers.admin() as client:
        yield places | dict(of_mongodb(client)), files


def pages(port: int) -> dict[str, bytes]:
    """All that Spark serves. The page of the environment asks the API for what it shows."""
    base = f"http://{HOST}:{port}"
    found = {page: _fetched(f"{base}/{page}") for page in PAGES}
    found |= {page: _fetched(f"{base}/{page}") for number in range(8) for page in (p.format(number) for p in OF_EACH)}
    (application,) = json.loads(_fetched(f"{base}/api/v1/applications"))
    rest = [f"api/v1/applications/{application['id']}{name}" for name in REST]
    return {
        f"page /{name}": text for name, text in (found | {name: _fetched(f"{base}/{name}") for name in rest}).items()
    }


def _fetched(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=30) as page:
            return bytes(page.read())
    except urllib.error.HTTPError as error:  # there is no job of this number
        return error.read()


def test_a_sweep_shows_no_password(servers: Servers, tmp_path: Path) -> None:
    env = servers.environment("client", RECOVERY_APP="tests.guarded.app:app")
    process = recovery("start", "twice", "3", env=env).stdout.strip()
    with servers.admin() as client:
        client[DATABASE]["graphs"].delete_one({"_id": process})
        # What was started a few seconds ago is perhaps being registered, and is not judged yet.
        past = datetime.now(UTC) - timedelta(minutes=1)
        client[DATABASE]["processes"].update_one({"_id": process}, {"$set": {"startedAt": past}})
    with sweeping(servers, tmp_path / "spark") as (places, files):
        found = json.loads(next(line for line in places["said"].splitlines() if line.startswith(b'{"version"')))
        assert found["repaired"] and "START_NOT_REGISTERED" in found["findings"], found
        assert find(servers.marks.values(), places) == []
        assert files.open == set(), "what holds a password is for its own user"
        assert files.guarded, "broadcasts were looked at"
        assert (
            b"recovery sweep" in places["page /environment/"]
            and b"PythonRDD" in places["page /stages/stage/?id=0&attempt=0"]
        )
        assert b"state" in places["page /SQL/execution/?id=0"] + places["page /SQL/execution/?id=1"]
        assert b"java" in places["process list"] and b"pyspark" in places["process list"]
    log = servers.mongod.log.read_text()
    assert f"CN={SWEEP},O=clients" in log and "MONGODB-X509" in log
    assert not re.search(r"not authorized on recovery to execute command \{ (?!createIndexes)", log)
    with servers.admin() as client:
        assert client[DATABASE]["graphs"].find_one({"_id": process}) is not None


def test_what_is_planted_in_spark_is_found(servers: Servers, tmp_path: Path) -> None:
    """As somebody has it who hands the address on in spark-defaults.conf, or on a command line."""
    mark = servers.marks["worker"]
    planted = f"spark.executorEnv.RECOVERY_MONGO_URI=mongodb://worker:{mark.encoded}@{HOST}/"
    with sweeping(servers, tmp_path / "spark", planted) as (places, _):
        found = find([mark], places)
    for place in (r"page /api/v1/applications/.*/environment", "process list"):
        assert any(re.match(f"{mark.name} percent-encoded in {place}", line) for line in found), (place, found)
