"""An import trusts nothing that its file says: what is no process at rest and of our form is refused."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from recovery.errors import InputError
from recovery.operations.importing import read_back
from recovery.settings import Settings
from recovery.store import schema
from tests.operations.exported import RECORDS, made
from tests.operations.ordering import Ordering
from tests.store.writing import contents

ID = f"{7:032x}"
SOON = {"$date": "2999-01-05T09:00:00Z"}
TASK = "abcdefghijklmnop"


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def process(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of the process of a line."""
    return lambda whole: whole["process"].update(fields)


def graph(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: whole["graph"].update(fields)


def decision(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: whole["decisions"][0].update(fields)


def task(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda whole: whole["tasks"][0].update(fields)


def other_decision(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change that adds a decision."""
    return lambda whole: whole["decisions"].append({**whole["decisions"][0], "_id": f"{ID}/{TASK}", **fields})


def all_of(*changes: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        for one in changes:
            one(whole)

    return change


def renamed(name: str) -> Callable[[dict[str, Any]], None]:
    """Return a change that gives the process and its records another id."""

    def change(whole: dict[str, Any]) -> None:
        whole["process"]["_id"] = whole["graph"]["_id"] = name
        whole["tasks"][0]["_id"] = whole["decisions"][0]["_id"] = f"{name}/start"

    return change


def nested(levels: int) -> dict[str, Any]:
    return {"x": nested(levels - 1)} if levels else {}


CHILD = {"_id": TASK, "actor": "pay", "args": "[[],{}]"}
FORGED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    # What would be run.
    "queued": (other_decision(state="queued", recoveryTime=SOON), "decision abcdefghijklmnop: its state is queued"),
    "queued, without a deadline": (other_decision(state="queued"), "its state is queued, and the process is finished"),
    "delayed": (decision(state="delayed", recoveryTime=SOON), "decision start: its state is delayed"),
    "working": (decision(state="working", recoveryTime=SOON), "its state is working"),
    "waiting": (decision(state="waiting"), "its state is waiting"),
    "not applied": (decision(recoveryTime=SOON), "decision start: its recoveryTime is set"),
    "running": (process(state="running", recoveryTime=SOON), "its state is running; only finished and aborted"),
    "broken": (process(state="broken"), "its state is broken"),
    "to be done again": (process(redo=["start"]), "its redo is set"),
    "with a marker due": (process(markerDue=True), "its markerDue is set"),
    "a live graph": (graph(recoveryTime=SOON), "graph: its recoveryTime is set"),
    "an open graph": (
        graph(notFinished={TASK: SOON}),
        "graph: its notFinished has tasks of a process",
    ),
    "queued and aborted": (
        all_of(process(state="aborted"), other_decision(state="queued")),
        "its state is queued, and the process is aborted",
    ),
    "no graph": (lambda whole: whole.update(graph=None), "it has no graph"),
    "no decision": (
        lambda whole: whole.update(decisions=[]),
        "its startTask is 'start', which has no decision",
    ),
    "no outcome": (decision(outcome=None), "decision start: its outcome is missing"),
    # Epochs and counters.
    "a later decision": (decision(epoch=5), "epoch is 5, and the process's is 0"),
    "a graph of another epoch": (graph(epoch=1), "graph: its epoch is 1, and the process's is 0"),
    "an epoch that can't grow": (
        all_of(process(epoch=2**61), graph(epoch=2**61)),
        "its epoch is 2305843009213693952, not 0 to 1,",
    ),
    "an epoch that would never be replaced": (
        all_of(process(epoch=10**15), graph(epoch=10**15), decision(epoch=10**15), task(epoch=10**15)),
        "its epoch is 1000000000000000, not 0 to 1,",
    ),
    "an epoch that is no whole number": (process(epoch=0.0), f"record {ID}: its epoch is 0.0, not a whole number"),
    "a graph's epoch that is a truth": (graph(epoch=False), "its epoch is a boolean, not a whole number"),
    "a task's epoch that is a text": (task(epoch="0"), "its epoch is a text"),
    "an outcome of nothing": (
        decision(outcome={"pass": "k"}),
        "decision start: its outcome has neither a value nor an error",
    ),
    "reopened without end": (process(reopened=2**62), "its reopened is"),
    # Ids.
    "no id": (renamed(""), "its _id is ''"),
    "an id with a slash": (renamed("a/b"), "its _id is 'a/b'"),
    "an id with NUL": (renamed("a\0b"), r"its _id is 'a\\x00b'"),
    "an id of megabytes": (renamed("a" * 2_000_000), "its _id is 'a{59}…, and"),
    "an id that is a query": (process(_id={"a": 1}), "its _id is {'a': 1}"),
    "no id of a task": (decision(_id=f"{ID}/x"), f"it has the record '{ID}/x', whose _id is none of its tasks"),
    "a task of another": (task(_id=f"{8:032x}/start"), f"it has the record '{8:032x}/start'"),
    "a decision twice": (other_decision(_id=f"{ID}/start"), "one of its Decision records occurs twice"),
    "a graph's task": (graph(finished=["start", "a/b"]), "the graph's finished has 'a/b', which is not a task id"),
    "a link": (graph(links={TASK: {"x": True}}), "the graph's links has 'x'"),
    "a child": (decision(children=[{**CHILD, "_id": "x"}]), "a child of decision start has 'x'"),
    "a promise": (
        decision(outcome={"pass": "k", "value": "1", "waits": ["x"]}),
        "the outcome of decision start has 'x'",
    ),
    "a parent": (task(parent="x"), "task start has 'x', which is not a task id"),
    "who replaced it": (process(replacedBy="x"), "its replacedBy is 'x', which is not a process id"),
    # Fields.
    "a type of megabytes": (process(type="a" * 2_000_000), "its type is 'a{59}…, which no actor"),
    "an empty custom id": (process(customId=""), "its customId=''"),
    "an actor of megabytes": (decision(actor="a" * 2_000_000), "/start: its actor is 'a{59}…, which no actor"),
    "a child's actor": (decision(children=[{**CHILD, "actor": ""}]), "its children is at 0 its actor is '', which no"),
    "an operator": (process(**{"$set": {"state": "running"}}), r"key '\$set' must not start with '\$'"),
    "an operator further in": (graph(links={"$set": {}}), r"key '\$set' must not start with '\$'"),
    "a key with a dot": (graph(links={"a.b": {}}), r"key 'a.b' must not contain '.'"),
    "a key with NUL": (process(**{"a\0": 1}), "must not contain the NULL byte"),
    "not a number": (process(idleTimeout=float("nan")), "its idleTimeout is nan, not a number"),
    "without end": (process(idleTimeout=float("inf")), "its idleTimeout is inf"),
    "a label that is a number": (process(labels=[1]), "its labels is at 0 a number, not a text"),
    "labels that are an object": (process(labels={"a": "b"}), "its labels is an object, not an array"),
    "a label without a name": (process(labels=["=x"]), "label '': a name has"),
    "no label": (process(labels=["x"]), "its labels are .* not sorted texts NAME=VALUE"),
    "labels out of order": (process(labels=["b=1", "a=1"]), "its labels are"),
    "a lone surrogate": (process(type="\ud800"), "holds a lone surrogate"),
    "no JSON": (process(args="("), "its args is not a valid JSON value"),
    "JSON that is none": (task(args="[[NaN],{}]"), "the args of task start is not a valid JSON value: NaN"),
    "JSON of a surrogate": (
        decision(outcome={"pass": "k", "value": '"\\ud800"'}),
        "the value of decision start is not a valid",
    ),
    "JSON that is deep": (process(result="[" * 100_000 + "]" * 100_000), "its result is not a valid JSON value"),
    "fields in each other": (process(x=nested(220)), f"record {ID} is nested over 100 levels deep"),
    "a number that is too large": (
        process(result="[1e999]"),
        "its result is not a valid JSON value: 1e999 is too large",
    ),
    "a number of 65 bits": (process(reopened=2**64), "more than the 64 bits"),
    "a date that is a text": (process(endedAt="2026-01-01"), "its endedAt is a text, not a date"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_process_is_refused_and_changes_nothing(world: Ordering, tmp_path: Path, name: str) -> None:
    change, said = FORGED[name]
    whole = json.loads(made(7))
    change(whole)
    file = tmp_path / "forged.jsonl"
    file.write_text("\n".join([made(1), json.dumps(whole)]))
    with pytest.raises(InputError, match=said) as error:
        read_back(world.app.resources, [file])
    message = str(error.value)
    assert message.startswith(f"{file}, line 2: ") and "Nothing was read back: " in message and len(message) < 1500
    assert all(contents(world.store, name) == {} for name in schema.OF_PROCESSES)


def test_an_aborted_process_with_tasks_that_never_ran_is_read_back(world: Ordering, tmp_path: Path) -> None:
    whole = json.loads(made(7, state="aborted"))
    whole["process"]["error"] = {"kind": "Aborted", "message": "enough"}
    whole["graph"] |= {"aborted": True, "notFinished": {TASK: SOON}, "links": {TASK: {"start": True}}}
    whole["decisions"].append({**whole["decisions"][0], "_id": f"{ID}/{TASK}"})
    file = tmp_path / "aborted.jsonl"
    file.write_text(json.dumps(whole))
    assert read_back(world.app.resources, [file]) == (1, 0, 0)


def test_a_line_is_read_up_to_a_limit(world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.operations.importing.MAX_LINE", 1000)
    file = tmp_path / "long.jsonl"
    file.write_text("x" * 1001)
    with pytest.raises(InputError, match="line 1: is longer than 1,000 bytes"):
        read_back(world.app.resources, [file])


def repeated(folder: Path) -> Path:
    """Return a file of a kilobyte of which a text of 20 MB is in each of 100 rows."""
    file = folder / "repeated.parquet"
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 100), pyarrow.array(["x" * 20_000_000]))
    # Without its own schema of Arrow, in which the column would be no text.
    pyarrow.parquet.write_table(pyarrow.table({"record": texts}), file, compression="zstd", store_schema=False)
    return file


def packed(folder: Path) -> Path:
    """Return a file of some kilobytes with a text of 300 MB, which it says is one of 100 bytes."""
    file = folder / "packed.parquet"
    writer = (
        "import sys, pyarrow, pyarrow.parquet as p; "
        "p.write_table(pyarrow.table({'record': ['x' * 300_000_000]}), sys.argv[1], compression='zstd', "
        "use_dictionary=False, write_statistics=False)"
    )
    subprocess.run([sys.executable, "-c", writer, str(file)], check=True)
    said = varint(2 * pyarrow.parquet.read_metadata(file).row_group(0).column(0).total_uncompressed_size)
    content = file.read_bytes()
    assert said in content
    file.write_bytes(content.replace(said, varint(2 * 100, len(said))))
    assert pyarrow.parquet.read_metadata(file).row_group(0).column(0).total_uncompressed_size == 100
    return file


def varint(number: int, length: int = 0) -> bytes:
    """Return a number as Thrift writes it, in so many bytes."""
    parts = [number >> 7 * place & 0x7F for place in range(max(length, (number.bit_length() + 6) // 7))]
    return bytes([part | 0x80 for part in parts[:-1]] + parts[-1:])


READ = """
import sys
from pathlib import Path
from recovery.operations import parquet
try:
    rows = sum(1 for _ in parquet.lines(Path(sys.argv[1])))
except Exception as error:
    print(type(error).__name__, error)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("make", [repeated, packed])
def test_a_small_file_takes_little_memory(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    file = make(tmp_path)
    assert file.stat().st_size < 100_000
    done = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=True)
    said, kilobytes = done.stdout.splitlines()
    assert said.startswith(f"InputError {file}: ") and "if you trust it, write its column `record`" in said
    assert int(kilobytes) < 500_000


CHECK = """
import sys
from pathlib import Path
from recovery.operations.importing import _processes
class Now:
    def now(self): return __import__("datetime").datetime.now(__import__("datetime").UTC)
class Resources:
    class store:
        from recovery.store.views.process_exports import Exports as exports
        now = staticmethod(Now().now)
before = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
try:
    print([*_processes(Resources, Path(sys.argv[1]))])
except Exception as error:
    print(type(error).__name__, error)
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) - before)
"""


@pytest.mark.parametrize("junk", ["{},", "[],", '{"a":{}},'])
def test_a_line_takes_memory_by_its_length(tmp_path: Path, junk: str) -> None:
    """A text of brackets becomes fifty times as much."""
    file = tmp_path / "junk.jsonl"
    file.write_text(made(7)[:-1] + f', "x": [{junk * (15_000_000 // len(junk))} 1]}}')
    done = subprocess.run([sys.executable, "-c", CHECK, str(file)], capture_output=True, text=True, check=True)
    said, kilobytes = done.stdout.splitlines()
    assert said == f"InputError {file}, line 1: takes more memory than a process of this length can need"
    assert int(kilobytes) < 350_000


def test_a_process_without_epochs_is_of_the_first(world: Ordering, tmp_path: Path) -> None:
    """An old one. Done again it comes to an end."""
    whole = json.loads(made(7))
    for record in (whole["process"], whole["graph"], whole["tasks"][0], whole["decisions"][0]):
        record["epoch"] = None
    del whole["graph"]["epoch"], whole["decisions"][0]["epoch"]
    file = tmp_path / "old.jsonl"
    file.write_text(json.dumps(whole))
    assert read_back(world.app.resources, [file]) == (1, 0, 0)
    epochs = {record["epoch"] for name in RECORDS for record in contents(world.store, name).values()}
    assert epochs == {world.process(ID).epoch} and 0 not in epochs


def test_the_limit_on_memory_is_taken_back(world: Ordering, tmp_path: Path) -> None:
    before, pool = resource.getrlimit(resource.RLIMIT_AS), pyarrow.default_memory_pool().backend_name
    file = tmp_path / "one.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"record": [made(7)]}), file)
    assert read_back(world.app.resources, [file]) == (1, 0, 0)
    assert (resource.getrlimit(resource.RLIMIT_AS), pyarrow.default_memory_pool().backend_name) == (before, pool)
