"""Markers: written once for what broke for good, never for what did not, and no start while there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recovery import Actor, Settings
from recovery.engine import Starts
from recovery.engine.end.breaking import break_process, mark, write_marker
from recovery.engine.operators.markers import clear_marker, find_marker, marker_of
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.errors import CustomIdTaken, InputError, StartRefused, UnknownProcessType
from recovery.metrics import STARTS_REFUSED as REFUSED
from recovery.records import ErrorInfo, ProcessState, ProcessTypePreferences
from recovery.scan import ProcessScanner
from recovery.store.lifecycle.markers import CLEARINGS
from tests.faults import Course, Died, Fault, Kind, Plan, installed, under
from tests.store import single
from tests.waiting import wait_until
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


class Copying:
    """A process type whose processes break while `broken`."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world, self.broken = world, True
        options = {"markers": True, "key": lambda database, **_: database, **settings}

        @world.app.process("copy", **options)
        def copy(database: str | None = None, table: str = "all") -> str:
            if self.broken:
                raise ValueError(f"no {database}")
            return f"{database}.{table}"

        self.type: Actor[..., Any] = copy

    def start(self, *args: Any, **kwargs: Any) -> str:
        return self.world.start(self.type, *args, **kwargs)

    def fail(self, database: str | None = "sales") -> str:
        """A process that has broken."""
        process_id = self.start(database)
        assert self.world.bring_to_end(process_id).state is ProcessState.BROKEN
        return process_id


@pytest.fixture
def copying(world: World) -> Copying:
    return Copying(world)


def test_a_process_that_breaks_leaves_a_marker_and_none_of_its_kind_is_started(copying: Copying) -> None:
    world, process_id = copying.world, copying.fail()
    marker = marker_of(world.app.resources, "copy", "sales")
    assert marker is not None and marker.written_at is not None
    assert (marker.id, marker.type, marker.key, marker.process) == ("copy/sales", "copy", "sales", process_id)
    assert (marker.kind, marker.message, marker.code, marker.task) == ("ValueError", "no sales", 40000, "start")
    assert marker.stack and "ValueError" in marker.stack
    before, counted = world.counts(), REFUSED.labels("copy", "FAILED_ADMIN")._value.get()
    with pytest.raises(StartRefused) as refused:
        copying.start("sales")
    assert REFUSED.labels("copy", "FAILED_ADMIN")._value.get() == counted + 1
    told = str(refused.value)
    assert "copy/sales" in told and process_id in told and "40000" in told and "no sales" in told
    assert f"{marker.written_at:%Y-%m-%d %H:%M:%S}" in told and "recovery marker clear copy/sales" in told
    assert (refused.value.reason, refused.value.marker, refused.value.code) == ("FAILED_ADMIN", "copy/sales", 40000)
    assert world.counts() == before, "nothing is written"
    copying.broken = False
    assert copying.world.run(copying.type, "stock") == "stock.all", "another key is none of its business"
    process = world.process(process_id)
    assert process.marker_due is None and process.recovery_time is None


def settled(world: World, *process_ids: str) -> None:
    """Have all that is left be done, by scanners whose deadlines come."""

    def at_rest() -> bool:
        world.pump()
        world.scan()
        return all(world.process(one).recovery_time is None for one in process_ids)

    wait_until(at_rest, 10, "processes at rest")


def course(work: Callable[[], object], kind: Kind, step: str) -> Course:
    """`work`, brought to its stop at this step."""
    made = Course(work, Plan(Fault(kind, 0, step)))
    assert not made.go(), f"it has not come to {step}: {made.error!r}"
    return made


@pytest.fixture
def faults() -> Iterator[None]:
    with installed():
        yield


@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("fault", [Kind.DIES, Kind.DIES_AFTER])
@pytest.mark.parametrize("step", ["Interruptions.add", "Processes.break_", "Markers.write", "Processes.settle_marker"])
def test_cut_off_at_any_write_the_marker_is_neither_forgotten_nor_written_twice(
    copying: Copying, step: str, fault: Kind
) -> None:
    world, process_id = copying.world, copying.start("sales")
    world.tell()
    with under(Plan(Fault(fault, 0, step))) as plan, suppress(Died):
        world.pump("doomed#1")
    assert plan.told, f"{step} was not reached"
    settled(world, process_id)
    assert world.process(process_id).state is ProcessState.BROKEN
    (marker,) = world.store.markers.all()
    assert (marker.id, marker.process) == ("copy/sales", process_id)


def due(copying: Copying, database: str = "sales") -> str:
    """A process that broke, and whose writer was cut off before its marker."""
    world, process_id = copying.world, copying.start(database)
    world.tell()
    with under(Plan(Fault(Kind.DIES, 0, "Markers.write"))), suppress(Died):
        world.pump("doomed#1")
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN and process.marker_due and process.recovery_time is not None
    assert world.store.markers.get(f"copy/{database}") is None
    return process_id


@pytest.mark.usefixtures("faults")
def test_of_two_that_break_at_once_the_first_writer_wins(copying: Copying) -> None:
    world = copying.world
    first, second = due(copying), due(copying)
    late = course(lambda: mark(world.app.resources, [first]), Kind.PAUSE, "Markers.write")
    assert mark(world.app.resources, [second]) == [second]
    assert late.finish() == [], "there is one"
    marker = marker_of(world.app.resources, "copy", "sales")
    assert marker is not None and marker.process == second
    settled(world, first, second)
    assert world.process(first).marker_due is None


@pytest.mark.usefixtures("faults")
def test_what_an_operator_has_cleared_nobody_writes_again_who_is_late(copying: Copying) -> None:
    world, resources = copying.world, copying.world.app.resources
    first, second = due(copying), due(copying)
    late = [course(lambda one=one: mark(resources, [one]), Kind.PAUSE, "Markers.write") for one in (first, second)]
    assert mark(resources, [first]) == [first]
    clear_marker(resources, "copy/sales", "the host is back", by="ann@ops")
    assert [one.finish() for one in late] == [[], []], "both broke before that"
    settled(world, first, second)
    assert marker_of(resources, "copy", "sales") is None
    third = copying.fail()
    marker = marker_of(resources, "copy", "sales")
    assert marker is not None and marker.process == third, "what breaks after that does leave one"
    (clearing,) = marker.clearings
    assert (clearing.by, clearing.reason, clearing.process) == ("ann@ops", "the host is back", first)


@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("written", [True, False], ids=["after it was written", "before it was written"])
def test_one_that_is_restarted_and_finishes_leaves_no_marker(copying: Copying, written: bool) -> None:
    world, resources = copying.world, copying.world.app.resources
    process_id = due(copying)
    late = course(lambda: mark(resources, [process_id]), Kind.PAUSE, "Markers.write")
    if written:
        assert mark(resources, [process_id]) == [process_id]
    copying.broken = False
    world.app.restart(process_id)
    assert (marker_of(resources, "copy", "sales") is not None) is written, "a restart alone has cured nothing"
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert late.finish() == []
    assert marker_of(resources, "copy", "sales") is None
    assert copying.start("sales")
    if written:
        (clearing,) = find_marker(resources, "copy/sales").clearings
        assert clearing.by == "recovery" and process_id in clearing.reason
    else:
        assert world.store.markers.cleared() == [], "there never was one"


@pytest.mark.usefixtures("faults")
def test_one_that_is_restarted_and_breaks_again_leaves_one(copying: Copying) -> None:
    world, resources = copying.world, copying.world.app.resources
    process_id = due(copying)
    late = course(lambda: mark(resources, [process_id]), Kind.PAUSE, "Markers.write")
    world.app.restart(process_id)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    assert late.finish() == []
    marker = marker_of(resources, "copy", "sales")
    assert marker is not None and marker.process == process_id
    settled(world, process_id)


@pytest.mark.usefixtures("faults")
def test_who_is_late_with_an_earlier_life_does_not_settle_a_later_one(copying: Copying) -> None:
    world, resources = copying.world, copying.world.app.resources
    process_id = due(copying)
    late = course(lambda: mark(resources, [process_id]), Kind.PAUSE, "Processes.settle_marker")
    clear_marker(resources, "copy/sales", "seen to")
    world.app.restart(process_id)
    with under(Plan(Fault(Kind.DIES, 0, "Markers.write"))), suppress(Died):
        world.pump("doomed#2")
    late.finish()
    assert world.process(process_id).marker_due, "its second marker is to be written yet"
    settled(world, process_id)
    assert marker_of(resources, "copy", "sales") is not None


def test_another_process_that_finishes_after_a_restart_leaves_the_marker_alone(copying: Copying) -> None:
    world = copying.world
    other = copying.start("sales")
    first = copying.fail()
    assert world.process(other).state is ProcessState.BROKEN
    marker = marker_of(world.app.resources, "copy", "sales")
    assert marker is not None
    copying.broken = False
    restarted = first if marker.process == other else other
    world.app.restart(restarted)
    assert world.bring_to_end(restarted).state is ProcessState.FINISHED
    assert marker_of(world.app.resources, "copy", "sales") == marker


def test_what_does_not_break_leaves_none(copying: Copying) -> None:
    """Aborted, or over by then."""
    world = copying.world
    aborted = copying.start("sales")
    world.app.abort(aborted, "not needed")
    world.pump()
    copying.broken = False
    finished = copying.start("sales")
    assert world.bring_to_end(finished).state is ProcessState.FINISHED
    assert not break_process(world.app.resources, finished, 0, ErrorInfo(kind="Late", message="too late"))
    assert not break_process(world.app.resources, aborted, 0, ErrorInfo(kind="Late", message="too late"))
    settled(world, aborted, finished)
    assert world.store.markers.all() == []


def test_a_type_that_does_not_ask_for_markers_leaves_none_until_it_is_set_to(world: World) -> None:
    copying = Copying(world, markers=False)
    copying.fail()
    copying.fail()
    assert world.store.markers.all() == []
    overrides = ProcessTypeOverrides(world.app.resources)
    overrides.set("copy", {"markers": True})
    copying.fail()
    with pytest.raises(StartRefused):
        copying.start("sales")
    overrides.set("copy", {"markers": False})
    assert copying.start("sales"), "what is not asked for holds up nobody"


@pytest.mark.usefixtures("faults")
@pytest.mark.parametrize("cut_off", [False, True])
def test_processes_that_are_broken_together_for_their_time_leave_theirs(world: World, cut_off: bool) -> None:
    copying = Copying(world, process_timeout=0.001, break_after_process_timeout=True)
    world.tell()
    started = {copying.start(database): database for database in ("sales", "stock")}
    fault = [Fault(Kind.DIES_AFTER, 0, "ProcessDeadlines.break_late")] if cut_off else []

    def broken() -> bool:
        with suppress(Died), under(Plan(*fault)):
            ProcessScanner(world.app.resources, world.app.outbox).run_once()
        return all(world.process(one).state is ProcessState.BROKEN for one in started)

    wait_until(broken, 10, "processes broken")
    if cut_off:
        assert world.store.markers.all() == []
    settled(world, *started)
    found = world.store.markers.all()
    assert {marker.process: marker.key for marker in found} == started
    assert {(marker.kind, marker.code) for marker in found} == {("ProcessTimeout", 40003)}


def test_a_poison_task_leaves_one(world: World) -> None:
    @world.app.process(markers=True, max_work_timeouts=1, worker_timeout=60)
    def poison() -> None: ...

    process_id = world.start(poison)
    world.tell()
    assert world.pop(["poison"]) is not None
    (decision,) = world.decisions(process_id).values()
    assert decision.pass_key is not None
    assert single.claim(world.store, "poison", decision.id, decision.pass_key, "gone#1", 0.001)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    (marker,) = world.store.markers.all()
    assert (marker.id, marker.key, marker.process, marker.kind) == ("poison", None, process_id, "WorkTimeout")


@pytest.mark.parametrize(("code", "marked"), [(20500, False), (40001, True), (10020, True), (None, True), (7, True)])
def test_of_what_a_schedule_tries_again_only_what_no_instance_can_cure_leaves_one(
    copying: Copying, code: int | None, marked: bool
) -> None:
    world = copying.world
    world.tell()
    starts = Starts(world.app.resources, ProcessTypePreferences(id="copy", markers=True))
    started = starts.start(starts.process('[["sales"],{}]', key="sales", retried_by_schedule=True)).id
    assert break_process(world.app.resources, started, 0, ErrorInfo(kind="Away", message="no", code=code))
    assert bool(world.store.markers.all()) is marked
    process = world.process(started)
    assert (process.recovery_time is None) and process.marker_due is None
    assert write_marker(world.app.resources, process) is not marked, "its schedule may write it"


def test_a_custom_id_that_is_taken_is_still_that_process(copying: Copying) -> None:
    world = copying.world
    first = copying.start("sales", custom_id="night 1")
    world.bring_to_end(first)
    assert copying.start("sales", custom_id="night 1") == first
    with pytest.raises(CustomIdTaken):
        copying.start("sales", "orders", custom_id="night 1")
    with pytest.raises(StartRefused):
        copying.start("sales", custom_id="night 2")
    ProcessTypeOverrides(world.app.resources).disable("copy", "moving house")
    assert copying.start("sales", custom_id="night 1") == first


def test_a_disabled_type_is_not_started(copying: Copying) -> None:
    world, overrides = copying.world, ProcessTypeOverrides(copying.world.app.resources)
    world.tell()
    refused = REFUSED.labels("copy", "DISABLED")._value.get()
    assert overrides.disable("copy", "moving house", by="ann@ops") is True
    assert overrides.disable("copy", "again") is False, "the first word stands"
    before = world.counts()
    with pytest.raises(
        StartRefused, match=r"copy is disabled.* by ann@ops, for 'moving house'.*process-type enable copy"
    ):
        copying.start("sales")
    assert world.counts() == before
    assert REFUSED.labels("copy", "DISABLED")._value.get() == refused + 1
    world.store.process_types.save([copying.type.process_type])  # a deployment
    assert overrides.get("copy").disabled is not None
    assert overrides.enable("copy") is True
    assert overrides.enable("copy") is False
    assert copying.start("sales")
    with pytest.raises(UnknownProcessType, match="did you mean 'copy'"):
        overrides.disable("copi", "moving house")
    for reason in ("", "  ", None, 5):
        with pytest.raises(InputError, match="say in a few words why"):
            overrides.disable("copy", reason)  # type: ignore[arg-type]


def test_clearing(copying: Copying) -> None:
    resources = copying.world.app.resources
    copying.fail()
    for name, near in (("copy/sale", "did you mean 'copy/sales'"), ("nosuch", "there are: copy/sales")):
        for ask in (
            lambda name=name: clear_marker(resources, name, "why"),
            lambda name=name: find_marker(resources, name),
        ):
            with pytest.raises(InputError, match=near):
                ask()
    with pytest.raises(InputError, match="say in a few words why"):
        clear_marker(resources, "copy/sales", " ")
    assert marker_of(resources, "copy", "sales") is not None
    cleared = clear_marker(resources, "copy/sales", "the host is back", by="ann@ops")
    assert cleared.kind == "ValueError"
    with pytest.raises(InputError, match=r"cleared already, at .* by ann@ops: the host is back"):
        clear_marker(resources, "copy/sales", "again")
    (found,) = copying.world.store.markers.cleared()
    assert found == replace(find_marker(resources, "copy/sales"), stack=None)
    assert copying.start("sales")


@pytest.mark.usefixtures("faults")
def test_a_marker_that_nobody_has_seen_is_not_cleared(copying: Copying) -> None:
    resources = copying.world.app.resources
    copying.fail()
    late = course(lambda: clear_marker(resources, "copy/sales", "seen", by="bob@ops"), Kind.PAUSE, "Markers.clear")
    clear_marker(resources, "copy/sales", "the host is back", by="ann@ops")
    second = copying.fail()
    with pytest.raises(InputError, match=r"cleared already, at .* by ann@ops: the host is back; a new marker was"):
        late.finish()
    marker = marker_of(resources, "copy", "sales")
    assert marker is not None and marker.process == second


def test_only_so_many_clearings_are_kept(copying: Copying) -> None:
    resources = copying.world.app.resources
    process = copying.world.process(copying.fail())
    clear_marker(resources, "copy/sales", "0")
    for n in range(1, CLEARINGS + 3):
        assert write_marker(resources, process.evolve(ended_at=copying.world.store.now() + timedelta(seconds=n)))
        clear_marker(resources, "copy/sales", str(n))
    reasons = [one.reason for one in find_marker(resources, "copy/sales").clearings]
    assert reasons == [str(n) for n in range(3, CLEARINGS + 3)]


def test_what_another_program_made_of_a_marker_is_one_still(copying: Copying) -> None:
    world = copying.world
    copying.fail()
    spoilt = {"message": {"$a": 1}, "code": "x", "writtenAt": "yesterday", "clearings": 5, "process": None, "actor": 7}
    update = {"q": {"_id": "copy/sales"}, "u": {"$set": spoilt}}
    world.store.database.command("update", "markers", updates=[update], bypassDocumentValidation=True)
    with pytest.raises(StartRefused, match="copy/sales"):
        copying.start("sales")
    assert [marker.id for marker in world.store.markers.all()] == ["copy/sales"]


KEYS: list[tuple[Any, str | None]] = [
    (lambda database, **_: database, "sales"),
    (lambda **all_: "/".join(map(str, all_.values())), "sales/all"),
    (lambda table, **_: table, "all"),
    (lambda database, table: f"{database} {table}", "sales all"),
    (lambda **_: 2.5, "2.5"),
    (lambda **_: None, None),
]


@pytest.mark.parametrize(("key", "wanted"), KEYS)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_key_is_made_of_the_arguments(world: World, key: Any, wanted: str | None, by_name: bool) -> None:
    copying = Copying(world, key=key)
    process_id = copying.start(database="sales") if by_name else copying.start("sales")
    assert world.process(process_id).key == wanted


def test_arguments_without_a_name_come_by_their_place(world: World) -> None:
    @world.app.process(key=lambda first, *others, **named: f"{first} {others} {sorted(named)}")
    def many(first: int, /, *others: int, last: int = 0, **more: int) -> None: ...

    @world.app.process(key=lambda first, second: f"{first}-{second}")
    def two(first: int, /, second: int) -> None: ...

    assert world.process(world.start(many, 1, 2, 3, x=4)).key == "1 (2, 3) ['last', 'x']"
    assert world.process(world.start(two, 1, second=2)).key == "1-2"


def boom(**_: Any) -> str:
    raise KeyError("database")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (boom, "raised KeyError: 'database'"),
        (lambda nosuch, **_: nosuch, "raised TypeError"),
        *(
            (lambda value=value, **_: value, "which is not a valid key")
            for value in ("", " a", "a\nb", "\x1b[2J", "x" * 201)
        ),
        *(
            (lambda value=value, **_: value, "which is not a valid key")
            for value in (True, [], {}, b"a", float("nan"), 10**400, "\ud800")
        ),
    ],
)
def test_a_key_that_is_none_is_an_error_and_nothing_is_started(world: World, key: Any, told: str) -> None:
    @world.app.process("copy", key=key)
    def copy() -> None: ...

    with pytest.raises(InputError, match=told) as error:
        world.start(copy)
    assert "process type copy" in str(error.value) and "othing was started" in str(error.value)
    assert world.counts()["processes"] == 0


def test_a_key_function_that_is_none_is_an_error_where_it_is_said(world: World) -> None:
    with pytest.raises(InputError, match="process type copy: key='database': must be a function"):
        Copying(world, key="database")


def test_what_it_costs(copying: Copying, world: World) -> None:
    """Nothing for types without markers, one read for those with."""

    @world.app.process()
    def plain() -> None: ...

    copying.broken = False
    world.tell()
    copying.start("sales"), world.start(plain)  # settings are read, connections made

    def asked(start: Callable[[], object]) -> Counter[str]:
        taken: Counter[str] = Counter()
        with installed(lambda name, _args, _result: taken.update([name])):
            start()
        return taken

    base = asked(lambda: world.start(plain))
    assert not [name for name in base if name.startswith("Markers.")]
    assert asked(lambda: copying.start("sales")) - base == {"Markers.find": 1}
