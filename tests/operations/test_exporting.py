"""What a collection exports can be read back: of what can't be nothing is removed, and the rest goes on. A mark that
nobody ordered counts for nothing."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recovery.engine.operators.redo import redo_process
from recovery.errors import DamagedRecord, InputError
from recovery.health import look, repair
from recovery.operations.export import take_out
from recovery.operations.importing import read_back
from recovery.records import ProcessState, ResultState
from recovery.records.operation import ExportFormat
from recovery.rules import Rule
from recovery.settings import Settings
from tests.operations.exported import RECORDS, at_rest, ended, export_of, lines_of, records, removed
from tests.operations.ordering import Ordering


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def written(world: Ordering, collection: str, key: str, *update: dict[str, Any]) -> None:
    """Write to a record as another program may."""
    changed = world.store.database[collection].update_one({"_id": key}, [*update], bypass_document_validation=True)
    assert changed.modified_count == 1


def exported(folder: Path) -> set[str]:
    return {json.loads(line)["process"]["_id"] for file in folder.iterdir() for line in lines_of(file)}


@pytest.mark.parametrize("export_format", [*ExportFormat])
def test_a_mark_that_nobody_ordered_keeps_nothing_out_of_an_export(
    world: Ordering, tmp_path: Path, export_format: ExportFormat
) -> None:
    marked, over = ended(world, 2)
    written(world, "processes", marked, {"$set": {"removing": True, "order": "mine"}})
    done = world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    assert done.applied is not None and done.applied.done == 2
    assert exported(tmp_path) == {marked, over} and sum(world.counts().values()) == 0
    assert read_back(world.app.resources, [*tmp_path.iterdir()]) == (2, 0, 0)


def test_a_mark_that_nobody_ordered_stops_no_import(world: Ordering, tmp_path: Path) -> None:
    (over,) = ended(world, 1)
    file = export_of(world, over, tmp_path / "kept.jsonl")
    written(world, "processes", over, {"$set": {"removing": True}})
    assert read_back(world.app.resources, [file]) == (0, 1, 0)


UNFIT: dict[str, tuple[str, dict[str, Any], str]] = {
    "a label without a value": ("processes", {"$set": {"labels": ["x"]}}, "its labels are"),
    "a field that is deep": ("processes", {"$set": {"x": json.loads('{"x":' * 120 + "1" + "}" * 120)}}, "nested over"),
    "a graph of another epoch": ("graphs", {"$set": {"epoch": 5}}, "graph: its epoch is 5"),
    "half of it": ("decisions", {"$unset": "outcome"}, "outcome is missing"),
}


@pytest.mark.parametrize("export_format", [*ExportFormat])
@pytest.mark.parametrize("name", UNFIT)
def test_what_nobody_could_read_back_stays_and_the_others_go(
    world: Ordering, tmp_path: Path, name: str, export_format: ExportFormat
) -> None:
    collection, update, why = UNFIT[name]
    unfit, *others = ended(world, 3)
    written(world, collection, unfit if collection != "decisions" else f"{unfit}/start", update)
    before = records(world)
    done = world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    assert done.applied is not None and (done.applied.done, done.applied.errors) == (2, 1)
    error = world.results(done)[unfit].error
    assert error is not None and why in error and "A collect without --export removes it" in error
    assert exported(tmp_path) == {*others}
    after = records(world)
    assert all(after[kind] == {key: one for key, one in before[kind].items() if unfit in key} for kind in RECORDS)
    assert read_back(world.app.resources, [*tmp_path.iterdir()]) == (2, 0, 0)


def test_what_is_live_is_not_written(world: Ordering, tmp_path: Path) -> None:
    live, over = ended(world, 2)
    written(world, "graphs", live, {"$set": {"recoveryTime": world.store.now()}})
    done = world.run_through("collect", "state:finished", export=str(tmp_path))
    assert {key: one.state for key, one in world.results(done).items()} == {
        live: ResultState.CHANGED,
        over: ResultState.DONE,
    }
    assert exported(tmp_path) == {over}


def test_without_any_that_is_fit_there_is_no_file(world: Ordering, tmp_path: Path) -> None:
    (unfit,) = ended(world, 1)
    written(world, "processes", unfit, {"$set": {"labels": ["x"]}})
    done = world.run_through("collect", "state:finished", export=str(tmp_path))
    assert [one.state for one in world.results(done).values()] == [ResultState.ERROR]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("export_format", [*ExportFormat])
def test_what_is_taken_out_of_a_file_limits_no_memory(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export_format: ExportFormat
) -> None:
    """The limit is the whole program's, and here that is a worker, which forks children that would keep it."""
    over = ended(world, 3)
    world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    (file,) = tmp_path.iterdir()
    monkeypatch.setattr(resource, "setrlimit", lambda *_: 1 / 0)
    take_out(file, {over[0]})
    monkeypatch.undo()
    assert exported(tmp_path) == {*over[1:]}
    take_out(file, {*over})
    assert not [*tmp_path.iterdir()]


def test_what_is_no_export_any_more_is_told(tmp_path: Path) -> None:
    for name in ("x.jsonl", "x.parquet"):
        (tmp_path / name).write_text("no\n")
        with pytest.raises(InputError, match=f"{name}"):
            take_out(tmp_path / name, {"p"})
        assert (tmp_path / name).read_text() == "no\n"


def spend(world: Ordering, key: str, seconds: float) -> None:
    """Have an import stand still until so many seconds before its deadline."""
    moment = world.store.now() + timedelta(seconds=seconds)
    written(world, "processes", key, {"$set": {"recoveryTime": moment}})


def stands_still(world: Ordering, monkeypatch: pytest.MonkeyPatch, before: str, does: Callable[[], object]) -> None:
    """Have something done before a collection's records are put by an import."""
    real = world.store.imports._put

    def put(name: str, documents: Any) -> None:
        if name == before:
            does()
        real(name, documents)

    monkeypatch.setattr(world.store.imports, "_put", put)


@pytest.mark.parametrize("before", ["tasks", "decisions", "graphs"])
def test_an_import_that_stood_still_leaves_nothing(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """It was taken for cut off, and removed. What it puts after that nobody would ever find."""
    (key,) = ended(world, 1)
    file = export_of(world, key, tmp_path / "kept.jsonl")
    removed(world, key)

    def cut_off() -> None:
        spend(world, key, -1)
        world.scan()
        assert world.counts()["processes"] == 0

    stands_still(world, monkeypatch, before, cut_off)
    with pytest.raises(InputError, match=f"process {key} was not imported: it took over 240 s.* the import again"):
        read_back(world.app.resources, [file])
    assert sum(world.counts().values()) == 0
    monkeypatch.undo()
    assert read_back(world.app.resources, [file]) == (1, 0, 0)


def test_what_an_import_has_not_saved_long_before_its_deadline_is_removed(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scanner may be about to: of half a process nothing is left."""
    (key,) = ended(world, 1)
    file = export_of(world, key, tmp_path / "kept.jsonl")
    removed(world, key)
    stands_still(world, monkeypatch, "graphs", lambda: spend(world, key, 30))
    with pytest.raises(InputError, match="was not imported"):
        read_back(world.app.resources, [file])
    monkeypatch.undo()
    assert {found.rule for found in look(world.app.resources, key).findings} == {Rule.REMOVAL_CUT_OFF}
    spend(world, key, -1)
    world.scan()
    assert sum(world.counts().values()) == 0


def test_records_that_lost_their_epoch_are_repaired_and_done_again(world: Ordering) -> None:
    key = world.end_of(world.start("order", 4))
    at_rest(world, key)
    for collection in ("graphs", "decisions", "tasks"):
        world.store.database[collection].update_many({}, {"$unset": {"epoch": ""}}, bypass_document_validation=True)
    with pytest.raises(DamagedRecord, match="its epoch is missing"):
        redo_process(world.app.resources, key, "wrong data")
    done, examined = repair(world.app.resources, look(world.app.resources, key))
    assert (done[Rule.RECORD_DAMAGED], examined.findings) == (len(world.decisions(key)) + 1, ())
    redo_process(world.app.resources, key, "wrong data")
    assert world.bring_to_end(key).state is ProcessState.FINISHED
    at_rest(world, key)
    assert not look(world.app.resources, key).findings
