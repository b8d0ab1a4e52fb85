"""Collection: what is over goes with all of its records, written to an export before, and comes back from that; nothing
that anybody would still look at goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow.parquet
import pytest

from recovery import operations
from recovery.engine.end.fencing import finish_removal, remove
from recovery.engine.operators.redo import preview_redo, redo_process
from recovery.errors import InputError, ProcessNotFound
from recovery.health import look
from recovery.operations import OperationRequest, parquet
from recovery.operations.export import append
from recovery.operations.importing import read_back
from recovery.operations.kinds import collect, kind_of
from recovery.records import Life, ProcessState, ResultState
from recovery.records.operation import ExportFormat
from recovery.records.schedule import Schedule
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store.operators.process_removals import Begun
from recovery.store.views.process_exports import Whole
from tests.operations.exported import RECORDS, at_rest, ended, export_of, lines_of, long_ago, made, records, removed
from tests.operations.ordering import Ordering, adds_up
from tests.ordered import begin_removal
from tests.store.writing import contents
from tests.waiting import wait_until


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


def test_what_is_over_goes_and_nothing_else(world: Ordering) -> None:
    over = ended(world, 3)
    aborted = world.orders(1)
    world.app.abort(aborted[0], "not wanted")
    at_rest(world, *aborted)
    broken = world.refunds(1)
    long_ago(world)
    running, lately = world.orders(1), [world.end_of(one) for one in world.orders(1)]
    done = world.run_through("collect")
    assert world.results(done).keys() == {*over, *aborted}
    assert {one.state for one in world.results(done).values()} == {ResultState.DONE}
    adds_up(world, done)
    left = {*broken, *running, *lately}
    assert contents(world.store, "processes").keys() == left
    for name in ("decisions", "tasks"):
        assert {key.partition("/")[0] for key in contents(world.store, name)} == left
    assert contents(world.store, "graphs").keys() == left
    with pytest.raises(ProcessNotFound):
        world.app.result(over[0], timeout=0)


def revive(world: Ordering, collection: str, key: str) -> None:
    world.store.database[collection].update_one({"_id": key}, {"$set": {"recoveryTime": world.store.now()}})


MEDDLING: dict[str, Callable[[Ordering, str], object]] = {
    "its graph is live": lambda world, key: revive(world, "graphs", key),
    "a task is live": lambda world, key: revive(world, "decisions", f"{key}/start"),
    "it has changed": lambda world, key: world.store.database["processes"].update_one(
        {"_id": key}, {"$set": {"epoch": 7}}
    ),
}


@pytest.mark.parametrize("meddle", MEDDLING.values(), ids=MEDDLING)
def test_what_has_changed_since_the_plan_stays(world: Ordering, meddle: Callable[[Ordering, str], object]) -> None:
    first, second = ended(world, 2)
    planned = world.bring_on(world.ask("collect"))
    meddle(world, first)
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    states = {key: one.state for key, one in world.results(done).items()}
    assert states == {first: ResultState.CHANGED, second: ResultState.DONE}
    assert world.process(first).removing is None
    adds_up(world, done)


def test_what_a_schedule_may_still_ask_for_stays(world: Ordering) -> None:
    first, second, third = ended(world, 3)
    schedule = Schedule(id="order", type="order", last_process=first, beside=(second,), recovery_time=world.store.now())
    assert world.store.schedules.insert(schedule)
    assert world.results(world.run_through("collect")).keys() == {third}


@pytest.mark.parametrize("export_format", [None, *ExportFormat])
def test_an_export_is_written_first_and_read_back(
    world: Ordering, tmp_path: Path, export_format: ExportFormat | None
) -> None:
    over = [world.end_of(world.start("order", 4, custom_id=f"o{n}", labels={"n": str(n)})) for n in range(5)]
    at_rest(world, *over)
    long_ago(world)
    before = records(world)
    done = world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    assert done.applied is not None and done.applied.done == 5
    assert sum(world.counts().values()) == 0
    files, ending = sorted(tmp_path.iterdir()), f".{export_format or 'jsonl'}"
    assert files and all(file.suffix == ending and f"operation-{done.id}-" in file.name for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files), "they hold arguments and results"
    lines = [line for file in files for line in lines_of(file)]
    assert [json.loads(line)["process"]["_id"] for line in lines] == sorted(over)
    taken = world.start("order", 9, custom_id="o0")
    assert read_back(world.app.resources, files) == (5, 0, 0)
    assert read_back(world.app.resources, files) == (0, 5, 0), "once is enough"
    after = records(world)
    for name in RECORDS:
        for key, document in before[name].items():
            if name == "processes" and document["customId"] == "o0":
                assert after[name][key].pop("formerCustomId") == document.pop("customId")
            epoch = after["processes"][key.partition("/")[0]]["epoch"]
            imported = {"importedEpoch": document["epoch"], "importedAs": epoch} if name == "processes" else {}
            assert after[name][key] == {**document, "epoch": epoch, **imported}
    assert world.process(taken).custom_id == "o0"
    assert look(world.app.resources, over[0]).findings == ()
    assert world.app.result(over[0], timeout=0) == 6


def while_written(monkeypatch: pytest.MonkeyPatch, does: Callable[[], object]) -> None:
    """Have something done each time that an export is written and nothing of it is removed."""
    real = collect.append

    def append(*args: Any) -> Path:
        written = real(*args)
        does()
        return written

    monkeypatch.setattr(collect, "append", append)


@pytest.mark.parametrize("export_format", [*ExportFormat])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_done_again_while_it_is_exported_is_in_no_export(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export_format: ExportFormat, count: int
) -> None:
    """It stays, and is collected once more in its new epoch. A file that has no others is gone."""
    again, *over = ended(world, count)
    ways = iter([lambda: redo_process(world.app.resources, again, "wrong data")])
    while_written(monkeypatch, lambda: next(ways, lambda: None)())
    done = world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    assert done.applied is not None and (done.applied.done, done.applied.changed) == (count - 1, 1)
    files = [*tmp_path.iterdir()]
    assert len(files) == bool(over)
    assert sorted(json.loads(line)["process"]["_id"] for file in files for line in lines_of(file)) == sorted(over)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert world.bring_to_end(again).state is ProcessState.FINISHED
    at_rest(world, again)
    long_ago(world)
    world.run_through("collect", "state:finished", export=str(tmp_path), export_format=export_format)
    assert sum(world.counts().values()) == 0
    assert read_back(world.app.resources, [*tmp_path.iterdir()]) == (count, 0, 0)
    assert world.process(again).epoch > 1, "in its last life"


def test_what_somebody_else_removes_while_it_is_exported_stays_in_the_export(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be all that is left of it."""
    (over,) = ended(world, 1)
    seen = world.process(over)
    while_written(monkeypatch, lambda: remove(world.app.resources, [seen]))
    world.run_through("collect", "state:finished", export=str(tmp_path))
    assert sum(world.counts().values()) == 0
    (file,) = tmp_path.iterdir()
    assert json.loads(lines_of(file)[0])["process"]["_id"] == over


def test_an_export_that_can_not_be_mended_is_named(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    again, over = ended(world, 2)

    def somebody_meddles() -> None:
        redo_process(world.app.resources, again, "wrong data")
        (file,) = tmp_path.iterdir()
        file.unlink()

    while_written(monkeypatch, somebody_meddles)
    done = world.run_through("collect", "state:finished", export=str(tmp_path))
    assert done.applied is not None and (done.applied.done, done.applied.changed) == (1, 1)
    assert "processes that were not removed" in caplog.text and again in caplog.text and over not in caplog.text


def test_a_slow_pace_makes_no_small_files_of_pages(world: Ordering, tmp_path: Path) -> None:
    over = ended(world, 5)
    planned = world.bring_on(world.ask("collect", "state:finished", export=str(tmp_path)))
    operations.set_rate(world.app.resources, planned.id, 2.0)
    operations.apply(world.app.resources, planned.id)
    done = world.bring_on(planned)
    assert world.results(done).keys() == set(over)
    (file,) = tmp_path.iterdir()
    assert len(lines_of(file)) == 5


def test_what_is_removed_in_part_is_not_written_over_what_was_whole(world: Ordering, tmp_path: Path) -> None:
    """Cut off in the midst of a removal, the rest of it goes; the export has the process as it was, once."""
    (over,) = ended(world, 1)
    planned = world.bring_on(world.ask("collect", "state:finished", export=str(tmp_path)))
    (planned_result,) = world.results(planned).values()
    kind = kind_of(planned.kind, world.app.resources, world.app.outbox)
    world.store.operation_results.begin([planned_result])
    append(world.app.resources, planned, [over])
    begin_removal(world.store, [(over, 0)], 60)
    world.store.database["decisions"].delete_many({})
    (done,) = kind.apply(planned, [planned_result.evolve(begun=True)])
    assert done.state is ResultState.DONE
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())["decisions"]) == 3


def test_a_late_removal_takes_nothing_of_what_was_read_back(world: Ordering, tmp_path: Path) -> None:
    """Whoever is paused in the midst of a removal goes on once others have ended it, and the process is back: as it
    was, done again, and just being removed again."""
    world.broken = False
    over = world.end_of(world.start("refund", 4, custom_id="r"))
    at_rest(world, over)
    (file, removals) = (tmp_path / "kept.jsonl", world.store.removals)
    file.write_text(next(iter(world.store.exports.wholes([over]))).line())
    late = begin_removal(world.store, [(over, 0)], 60)
    assert finish_removal(world.app.resources, [over]) == [over]
    assert sum(world.counts().values()) == 0
    assert read_back(world.app.resources, [file]) == (1, 0, 0)

    back = records(world)
    assert begin_removal(world.store, [(over, 0)], 60) == [], "as it was seen it is no more"
    assert removals.finish(late) == 0
    assert records(world) == back
    assert look(world.app.resources, over).findings == ()

    world.broken = True
    redo_process(world.app.resources, over, "wrong data")
    assert world.bring_to_end(over).state is ProcessState.BROKEN
    again, listed = records(world), contents(world.store, "interruptions")
    assert listed
    assert removals.finish(late) == 0
    assert (records(world), contents(world.store, "interruptions")) == (again, listed)

    world.app.abort(over, "not wanted")
    at_rest(world, over)
    begun = begin_removal(world.store, [(over, world.process(over).epoch)], 60)
    assert begun
    world.store.database["graphs"].delete_many({})
    being = records(world)
    assert removals.finish(late) == 0
    assert records(world) == being, "who removes it finds the process last"
    assert removals.finish(begun) == 1
    assert sum(world.counts().values()) == 0


@pytest.mark.parametrize("spoilt", [{"$set": {"epoch": "no"}}, {"$unset": {"epoch": ""}}])
def test_a_removal_of_what_is_spoilt_ends_all_the_same(world: Ordering, spoilt: dict[str, Any]) -> None:
    over = ended(world, 2)
    begin_removal(world.store, [(key, 0) for key in over], 60)
    world.store.database["processes"].update_one({"_id": over[0]}, spoilt, bypass_document_validation=True)
    world.store.database["tasks"].update_many({}, spoilt, bypass_document_validation=True)
    assert sorted(finish_removal(world.app.resources, over)) == sorted(over)
    assert sum(world.counts().values()) == 0


def test_a_process_that_is_being_removed_is_not_taken_for_there(world: Ordering, tmp_path: Path) -> None:
    (over,) = ended(world, 1)
    file = tmp_path / "kept.jsonl"
    file.write_text(next(iter(world.store.exports.wholes([over]))).line())
    begin_removal(world.store, [(over, 0)], 60)
    with pytest.raises(InputError, match=f"process {over} is being removed; import it again"):
        read_back(world.app.resources, [file])


@pytest.mark.parametrize("first", [0, 1], ids=["the older file first", "the newer file first"])
@pytest.mark.parametrize("together", [True, False], ids=["in one import", "one after the other"])
def test_of_two_exports_the_later_one_is_there(world: Ordering, tmp_path: Path, first: int, together: bool) -> None:
    """Exported, removed, read back, done again, exported and removed: what was told last is told again."""
    key = world.end_of(world.start("order", 4))
    at_rest(world, key)
    files = [export_of(world, key, tmp_path / "0.jsonl")]
    removed(world, key)
    assert read_back(world.app.resources, files) == (1, 0, 0)
    back = world.process(key)
    redo_process(world.app.resources, key, "wrong data")
    world.bring_to_end(key)
    at_rest(world, key)
    again = world.process(key)
    assert again.epoch == back.epoch + 1 and again.result == back.result
    files.append(export_of(world, key, tmp_path / "1.jsonl"))
    with pytest.raises(InputError, match=f"exists in epoch {again.epoch}, and the file has the earlier epoch 0"):
        read_back(world.app.resources, files[:1])
    assert world.process(key) == again
    removed(world, key)
    files = files if first == 0 else files[::-1]
    if together:
        assert read_back(world.app.resources, files) == (1, 1, 0)
    elif first == 0:
        assert read_back(world.app.resources, files[:1]) == (1, 0, 0)
        assert read_back(world.app.resources, files[1:]) == (1, 0, 1), "it takes the place of the older one"
    else:
        assert read_back(world.app.resources, files[:1]) == (1, 0, 0)
        with pytest.raises(InputError, match="the earlier epoch 0: its later changes would be lost"):
            read_back(world.app.resources, files[1:])
    last = world.process(key)
    assert (last.exported_epoch, len(last.lives)) == (again.epoch, 1)
    assert last.epoch > again.epoch, "an epoch comes once"
    assert read_back(world.app.resources, [tmp_path / "1.jsonl"]) == (0, 1, 0)
    assert not look(world.app.resources, key).findings and not world.store.removals.live([key])


def test_an_import_leaves_a_live_process_alone(world: Ordering, tmp_path: Path) -> None:
    key = world.end_of(world.start("order", 4))
    at_rest(world, key)
    redo_process(world.app.resources, key, "wrong data")
    world.bring_to_end(key)
    at_rest(world, key)
    later = export_of(world, key, tmp_path / "later.jsonl")
    removed(world, key)
    world.store.imports.save([world.store.exports.parsed(made(1).replace(f"{1:032x}", key))])
    redo_process(world.app.resources, key, "wrong data")
    line = json.loads(later.read_text())
    by = world.process(key).epoch
    for record in (line["process"], line["graph"], *line["tasks"], *line["decisions"]):
        record["epoch"] += by
    later.write_text(json.dumps(line))
    with pytest.raises(InputError, match=f"and running: epoch {by + 1} can replace it once it has ended"):
        read_back(world.app.resources, [later])


def test_an_import_that_is_cut_off_is_removed(world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = world.end_of(world.start("order", 4))
    at_rest(world, key)
    file = export_of(world, key, tmp_path / "kept.jsonl")
    removed(world, key)
    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store.imports, "_commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read_back(world.app.resources, [file])
    assert {finding.rule for finding in look(world.app.resources, key).findings} == {Rule.REMOVAL_CUT_OFF}
    with pytest.raises(InputError, match="is being removed; import it again"):
        read_back(world.app.resources, [file])
    past = world.store.now() - timedelta(seconds=1)
    world.store.database["processes"].update_one({"_id": key}, {"$set": {"recoveryTime": past}})
    world.scan()
    assert sum(world.counts().values()) == 0
    assert read_back(world.app.resources, [file]) == (1, 0, 0)


def test_two_imports_at_once(world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that begins first has it; the other one touches nothing of it."""
    key = world.end_of(world.start("order", 4))
    at_rest(world, key)
    file = export_of(world, key, tmp_path / "kept.jsonl")
    removed(world, key)
    real = world.store.imports.save

    def late(wholes: Any) -> Any:
        monkeypatch.undo()
        assert read_back(world.app.resources, [file]) == (1, 0, 0)
        return real(wholes)

    monkeypatch.setattr(world.store.imports, "save", late)
    assert read_back(world.app.resources, [file]) == (0, 1, 0)
    assert not look(world.app.resources, key).findings
    epochs = {one["epoch"] for found in records(world).values() for one in found.values()}
    assert epochs == {world.process(key).epoch}


def test_an_import_goes_by_batches(world: Ordering, tmp_path: Path) -> None:
    """One round trip for hundreds; those that are there, twice in it, or whose custom id is taken hold up none."""
    taken = world.start("order", 4, custom_id="c7")
    before = world.counts()["processes"]
    lines = [made(number, customId=f"c{number}") for number in range(1200)]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join([*lines[:300], *lines[200:], made(7, customId="another's")]))
    world.store.database.command("profile", 2)
    assert read_back(world.app.resources, [file]) == (1200, 101, 0)
    world.store.database.command("profile", 0)
    of_records = {"ns": {"$in": [f"{world.settings.database}.{name}" for name in RECORDS]}}
    commands = world.store.database["system.profile"].count_documents(of_records)
    world.store.database["system.profile"].drop()
    assert commands < 50
    assert world.counts()["processes"] == before + 1200
    seven = world.process(f"{7:032x}")
    assert (seven.custom_id, seven.former_custom_id, seven.imported_epoch) == (None, "c7", 0)
    assert world.process(taken).custom_id == "c7"
    assert world.process(f"{8:032x}").custom_id == "c8"


def test_nothing_is_read_back_of_files_with_an_error(world: Ordering, tmp_path: Path) -> None:
    files = [tmp_path / "good.jsonl", tmp_path / "some.jsonl"]
    files[0].write_text("\n".join([made(1), made(2)]))
    for line, said in (
        ("{", "it is not valid JSON: .*"),
        (made(5, state="running"), f"process {5:032x}: its state is running; only finished and aborted processes .*"),
        (made(6, reopened=10**20), f"record {6:032x}: a number has more than the 64 bits that MongoDB has for one"),
    ):
        files[1].write_text("\n".join([made(3), line, made(4)]))
        with pytest.raises(InputError, match=f"some.jsonl, line 2: {said}. Nothing was read back: leave this"):
            read_back(world.app.resources, files)
        assert contents(world.store, "processes") == {}


def test_files_that_are_no_exports(world: Ordering, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    with pytest.raises(InputError, match=r"x.parquet: can't be read: No such file"):
        read_back(world.app.resources, [file])
    file.write_text("no")
    with pytest.raises(InputError, match=r"x.parquet: can't be read: it is not Parquet"):
        read_back(world.app.resources, [file])
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), file)
    with pytest.raises(InputError, match=r"x.parquet: it is not an export"):
        read_back(world.app.resources, [file])
    pyarrow.parquet.write_table(pyarrow.table({"record": ["{}"]}), file)
    with pytest.raises(InputError, match=r"x.parquet, row 1: it is not a process"):
        read_back(world.app.resources, [file])
    with pytest.raises(InputError, match=r"is not a regular file, but it must be read twice"):
        read_back(world.app.resources, [tmp_path])


def date_of(value: dict[str, Any]) -> Any:
    return datetime.fromisoformat(value["$date"]) if "$date" in value else value


def test_an_export_of_odd_ids_and_of_what_can_not_be_read(world: Ordering, tmp_path: Path) -> None:
    """Ids of which one begins with another: their records come in another order than they do."""
    keys = ["a", "a-b", "a0", "b"]
    for key in keys:
        whole = json.loads(made(0).replace(f"{0:032x}", key), object_hook=date_of)
        world.store.imports.save([Whole(**whole)])
    world.store.database["processes"].update_one({"_id": "b"}, {"$set": {"labels": 5}}, bypass_document_validation=True)
    wholes = {one.id: one for one in world.store.exports.wholes([*keys, "gone"])}
    assert {key: [one["_id"] for one in whole.tasks] for key, whole in wholes.items()} == {
        key: [f"{key}/start"] for key in keys
    }
    with (tmp_path / "odd.parquet").open("wb") as file:
        parquet.write(file, [(whole, whole.line()) for whole in wholes.values()])
    table = pyarrow.parquet.read_table(tmp_path / "odd.parquet").to_pylist()
    assert {row["process"]: (row["labels"], row["damage"]) for row in table}["b"] == (None, ["labels"])
    assert [*parquet.lines(tmp_path / "odd.parquet")] == [whole.line() for whole in wholes.values()]


def test_without_pyarrow_nothing_is_ordered_or_removed(
    world: Ordering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told whoever orders; and by a worker that has none, before anything is removed."""
    over = ended(world, 2)
    planned = world.bring_on(world.ask("collect", "state:finished", export=str(tmp_path), export_format="parquet"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="Parquet needs pyarrow: pip install 'recovery-workers"):
        world.ask("collect", "state:finished", export=str(tmp_path), export_format="parquet")
    operations.apply(world.app.resources, planned.id)
    results = world.results(world.bring_on(planned))
    assert all("Parquet needs pyarrow" in (one.error or "") for one in results.values())
    assert contents(world.store, "processes").keys() == set(over) == results.keys()
    assert [*tmp_path.iterdir()] == [], "nor is anything left that is half written"


def test_what_can_not_be_written_is_not_removed(world: Ordering, tmp_path: Path) -> None:
    over = ended(world, 2)
    done = world.run_through("collect", "state:finished", export=str(tmp_path / "nowhere"))
    results = world.results(done)
    assert {one.state for one in results.values()} == {ResultState.ERROR}
    assert all("can't be written: No such file" in (one.error or "") for one in results.values())
    assert contents(world.store, "processes").keys() == set(over)


@pytest.mark.parametrize("collection", ["decisions", "tasks", "graphs", "processes"])
def test_cut_off_it_is_found_and_finished(world: Ordering, collection: str) -> None:
    """As far as this collection's records, which stay."""
    (over,) = ended(world, 1)
    order = ["decisions", "tasks", "interruptions", "graphs", "processes"]
    begin_removal(world.store, [(over, 0)], 0.3)
    for name in order[: order.index(collection)]:
        world.store.database[name].delete_many({"_id": {"$regex": f"^{over}"}})
    (finding,) = look(world.app.resources, over).findings
    assert finding.rule is Rule.REMOVAL_CUT_OFF
    with pytest.raises(InputError, match="is being removed"):
        preview_redo(world.app.resources, over)

    def gone() -> bool:
        world.scan()
        return sum(world.counts().values()) == 0

    wait_until(gone, 10, "the rest of the removal")


def test_of_a_restart_and_a_removal_one_is_first(world: Ordering) -> None:
    first, second = ended(world, 2)
    seen = {key: world.process(key) for key in (first, second)}
    redo_process(world.app.resources, first, "wrong data")
    assert remove(world.app.resources, [*seen.values()]) == {second}
    assert world.bring_to_end(first).state is ProcessState.FINISHED


def test_what_is_broken_is_not_removed_whoever_asks(world: Ordering) -> None:
    (key,) = world.refunds(1)
    seen = world.process(key)
    assert (seen.state, seen.recovery_time) == (ProcessState.BROKEN, None)
    assert begin_removal(world.store, [(key, 0)], 60) == []
    assert world.process(key) == seen


def test_the_first_write_is_of_what_was_seen_and_frees_the_custom_id(world: Ordering) -> None:
    key = world.end_of(world.start("order", 4, custom_id="o1"))
    at_rest(world, key)
    seen = world.process(key)
    assert begin_removal(world.store, [(key, seen.epoch + 1)], 60) == []
    assert world.process(key) == seen
    assert begin_removal(world.store, [(key, seen.epoch)], 60) == [Begun(key, seen.epoch, 0, ANY)]
    now = world.process(key)
    assert (now.removing, now.custom_id, now.former_custom_id) == (True, None, "o1")
    life = Life(epoch=0, state=seen.state, by="me", reason="late", ended_at=world.store.now())
    assert not world.store.redos.begin(seen, life, ["start"], "k", 60), "it was seen before it was to be removed"
    assert world.start("order", 4, custom_id="o1") != key


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "it is not valid JSON"),
        ('{"process": {"_id": {"$oid": "no"}}}', "it is not valid JSON"),
        ('{"process": {"_id": {"$date": {}}}}', "it is not valid JSON"),
        ("[]", "it is not a process"),
        ('{"process": {"_id": 5}, "tasks": [], "decisions": []}', "it is not a process"),
        (
            made(1).replace(f'"{1:032x}/start"', f'"{2:032x}/start"'),
            f"'{2:032x}/start', whose _id is none of",
        ),
        (made(1).replace('"graph": {"_id": "0', '"graph": {"_id": "1'), f"process {1:032x}: its graph is of another"),
    ],
)
def test_what_is_no_export(world: Ordering, line: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        world.store.exports.parsed(line)
    assert sum(world.counts().values()) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (OperationRequest("abort", "type:order", export="/tmp"), "is for collect; abort removes nothing"),
        (OperationRequest("collect", "type:order", export="exports"), "give the whole path of a folder"),
        (OperationRequest("collect", "type:order", export=__file__), "is not a folder"),
        (
            OperationRequest("collect", "type:order", export="/tmp", export_format="csv"),
            "--format 'csv': give one of jsonl, parq",
        ),
        (OperationRequest("collect", "type:order", export_format="parquet"), "give its folder with --export FOLDER"),
    ],
)
def test_an_export_that_can_not_be(world: Ordering, asked: OperationRequest, told: str) -> None:
    world.orders(1)
    with pytest.raises(InputError, match=told):
        asked.checked(world.app.resources)
