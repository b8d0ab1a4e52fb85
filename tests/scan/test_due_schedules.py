"""The Schedule scanner on a real database: one instance per slot, whoever looks and whatever breaks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest

from recovery.engine import Keys, break_off, declare_schedules, look_at
from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.engine.operators.schedules import Schedules
from recovery.engine.start import occurrences
from recovery.engine.start.occurrences import instances
from recovery.errors import InputError, ServerUnavailable
from recovery.records import ErrorInfo, Marker, ProcessState, Worker
from recovery.records.schedule import Schedule, SlotOutcome
from recovery.scan import ScanResult, ScheduleScanner
from recovery.schedule import judge, plan_of
from tests.faults import Died
from tests.store import single
from tests.store.writing import contents
from tests.waiting import wait_until
from tests.world import World

RETRIABLE = 30101


def make(world: World, **said: Any) -> Schedule:
    """A schedule `nightly`, hourly, with its slot of an hour ago due: (nothing was looked at since)."""

    def nightly(database: str = "shop") -> str:
        return database

    world.app.process(**{"schedule": "1h", **said})(nightly)
    declare(world)
    return due(world)


def declare(world: World) -> None:
    world.tell()
    declare_schedules(world.app.resources, world.app.actors, world.app.schedules)


def due(world: World, ago: timedelta = timedelta(minutes=1)) -> Schedule:
    """Its next slot so long ago, as if time had gone by."""
    moment, saved = world.store.now().replace(microsecond=0) - ago, get(world)
    if saved.recent and moment <= saved.recent[-1].slot:  # of another second: it is another slot
        moment = saved.recent[-1].slot + timedelta(seconds=1)
    assert world.store.schedules.save(saved.evolve(next_slot=moment, recovery_time=moment))
    return get(world)


def get(world: World, name: str = "nightly") -> Schedule:
    found = world.store.schedules.get(name)
    assert found is not None
    return found


def scan(world: World) -> ScanResult:
    result = ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once()
    assert result.error is None
    return result


def processes(world: World) -> dict[str, dict[str, Any]]:
    return contents(world.store, "processes")


def outcomes(world: World) -> list[str]:
    return [one.outcome.value for one in get(world).recent]


def break_(world: World, code: int) -> None:
    """End the last instance with this code, as its worker does."""
    last = get(world).last_process
    assert last is not None
    assert world.store.processes.break_(last, 0, ErrorInfo(kind="E", message="m", code=code))


def test_a_slot_starts_a_process_with_its_arguments_and_a_name_of_its_own(world: World) -> None:
    before = make(world, schedule_arguments={"database": "books"})
    assert before.next_slot is not None
    scan(world)
    (process,) = processes(world).values()
    assert process["customId"] == f"nightly@{before.next_slot:%Y-%m-%dT%H:%M:%SZ}"
    assert process["args"] == '[[],{"database":"books"}]'
    after = get(world)
    assert (after.last_process, after.last_slot) == (process["_id"], before.next_slot)
    assert after.next_slot == before.next_slot + timedelta(hours=1)
    assert after.starting is None and outcomes(world) == ["started"]
    assert world.bring_to_end(process["_id"]).result == '"books"'
    assert scan(world).looked_at == 0


@pytest.mark.parametrize("shared_with", [None, "bank"])
def test_it_is_of_the_newest_version_that_serves_it(world: World, shared_with: str | None) -> None:
    """Whichever worker scans: it may be of another application, which shares the database."""
    world = World(world.app.settings.model_copy(update={"shared_with": shared_with}))

    def serve(version: str | None, queue: str = "nightly") -> None:
        name = f"{version}-{queue}"
        one = Worker(id=name, name=name, host="", pid=1, pid_started=1, queues=(queue,), application_version=version)
        world.store.workers.beat(one, 60)

    def started() -> tuple[str | None, bool | None]:
        scan(world)
        last = get(world).last_process
        assert last is not None
        return world.process(last).version, world.process(last).pinned

    make(world, versions="same", overlap="allow")
    own = (None, None) if shared_with else (world.app.version, True)
    assert started() == own
    serve("9.0", queue="another")
    for version in ("2.0", "1.0"):
        serve(version)
        due(world)
        assert started() == (version, True)


def test_any_number_of_scanners_at_once_start_one(world: World) -> None:
    make(world)
    gate = threading.Barrier(8)

    def one(_: int) -> ScanResult:
        gate.wait()
        return scan(world)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    assert len(processes(world)) == 1
    assert outcomes(world) == ["started"]


def test_who_looked_long_ago_starts_nothing(world: World) -> None:
    """A scanner that stood still between its look and its write: the slot was skipped meanwhile, and stays so."""
    make(world)
    scan(world)
    stale = due(world)  # the first instance still runs: it is skipped
    scan(world)
    assert outcomes(world) == ["started", "skipped"]
    single.finish_process(world.store, get(world).last_process or "", 0, "null")
    assert look_at(world.app.resources, stale) is None
    assert len(processes(world)) == 1 and outcomes(world) == ["started", "skipped"]


CUTS = ["after the decision", "after the start", "after the settling"]


@pytest.mark.parametrize("cut", CUTS)
def test_cut_off_anywhere_it_is_one_instance(world: World, cut: str) -> None:
    make(world)
    save, start = world.store.schedules.save, occurrences.Starts.start
    saved = [0]

    def saving(schedule: Schedule) -> bool:
        done = save(schedule)
        saved[0] += 1
        if cut == CUTS[0] or (cut == CUTS[2] and saved[0] == 2):
            raise Died
        return done

    def starting(*args: Any, **kwargs: Any) -> str:
        process = start(*args, **kwargs)
        if cut == CUTS[1]:
            raise Died
        return process

    cutting = patch.object(world.store.schedules, "save", saving), patch.object(occurrences.Starts, "start", starting)
    with cutting[0], cutting[1], pytest.raises(Died):
        scan(world)
    scan(world)
    scan(world)
    (process,) = processes(world)
    assert get(world).last_process == process and outcomes(world) == ["started"]


def test_arguments_that_were_changed_between_a_start_and_its_repetition_are_no_second_start(world: World) -> None:
    make(world)
    start = occurrences.Starts.start

    def starting(*args: Any, **kwargs: Any) -> str:
        start(*args, **kwargs)
        raise Died

    with patch.object(occurrences.Starts, "start", starting), pytest.raises(Died):
        scan(world)
    Schedules(world.app.resources).set("nightly", {"arguments": {"database": "other"}}, "")
    scan(world)
    assert len(processes(world)) == 1 and outcomes(world) == ["started"]


def test_a_deadline_that_a_wrong_clock_left_far_off_is_found(world: World) -> None:
    """The clock was a year ahead, and the slot of then was started."""
    made = make(world)
    year = timedelta(days=365)
    assert made.next_slot is not None
    with patch.object(type(world.store), "now", lambda _: made.next_slot + year):
        look_at(world.app.resources, made)
    ahead = get(world)
    assert ahead.recovery_time is not None and ahead.recovery_time > made.next_slot + year - timedelta(hours=2)
    scan(world)
    after, now = get(world), world.store.now()
    assert after.next_slot is not None and now < after.next_slot <= now + timedelta(hours=1)
    soon = now.replace(microsecond=0)
    assert world.store.schedules.save(after.evolve(next_slot=soon, recovery_time=soon))
    single.finish_process(world.store, after.last_process or "", 0, "null")
    scan(world)
    assert outcomes(world) == ["missed", "started", "started"]


def test_queue_starts_it_once_the_other_has_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "QUEUE_LOOK", timedelta(milliseconds=50))
    make(world, overlap="queue")
    scan(world)
    second = due(world).next_slot
    scan(world)
    assert outcomes(world) == ["started", "queued"] and get(world).waiting == (second,)
    world.bring_to_end(get(world).last_process or "")

    def started() -> bool:
        scan(world)
        return get(world).last_slot == second

    wait_until(started, 10, "the slot that waited")
    assert len(processes(world)) == 2 and get(world).waiting == ()


def test_all_that_was_missed_is_caught_up_by_one_scan(world: World) -> None:
    make(world, overlap="allow", catch_up="all", catch_up_limit=5)
    due(world, timedelta(hours=9, minutes=30))
    scan(world)
    assert outcomes(world) == ["missed", *["started"] * 5]
    assert len(processes(world)) == 5


def test_a_type_that_no_worker_has_told_of_is_a_slot_refused(world: World) -> None:
    make(world)
    world.store.database["processTypes"].delete_many({})
    scan(world)
    (result,) = get(world).recent
    assert result.outcome is SlotOutcome.REFUSED and "no process type is named 'nightly'" in (result.reason or "")
    assert get(world).next_slot is not None and processes(world) == {}


def test_one_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    make(world)
    old = {"recoveryTime": datetime(2020, 1, 1), "nextSlot": "soon", "type": 7, "version": 0}
    world.store.database["schedules"].insert_one({"_id": "odd", **old}, bypass_document_validation=True)
    scan(world)
    assert outcomes(world) == ["started"]
    assert scan(world).looked_at == 0, "it is postponed"


def test_a_deployment_keeps_what_an_operator_set(world: World) -> None:
    make(world)
    operator = Schedules(world.app.resources)
    operator.set("nightly", {"schedule": "30 2 * * *", "time_zone": "Europe/Berlin"}, "the shop is open")
    operator.pause("nightly", "an audit")
    declare(world)
    kept = get(world)
    assert kept.plan.schedule == "30 2 * * *" and kept.paused is not None and kept.paused.reason == "an audit"
    assert kept.code is not None and kept.code.schedule == "1h"
    world.app.schedules.clear()
    declare(world)
    assert get(world).code is None and get(world).plan.schedule == "30 2 * * *"


def test_workers_that_start_at_once_make_one(world: World) -> None:
    def nightly() -> None: ...

    world.app.process(schedule="1h")(nightly)
    world.tell()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: declare(world), range(8)))
    assert get(world).version == 1, "made, and its key told"


def test_operators_who_change_it_at_once_lose_no_word(world: World) -> None:
    make(world)
    names = ["jitter", "catch_up_limit", "retry_across_count"]

    def change(name: str) -> None:
        Schedules(world.app.resources).set("nightly", {name: "7"}, "")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(change, names))
    plan = get(world).plan
    assert (plan.jitter, plan.catch_up_limit, plan.retry_across_count) == (7.0, 7, 7)


def test_failing_with_one_code_past_its_time_disables_it_until_it_is_enabled(world: World) -> None:
    make(world, retry_across_count=3)
    for _ in range(3):
        scan(world)
        break_(world, RETRIABLE)
        due(world)
    scan(world)
    disabled = get(world)
    assert disabled.disabled is not None and disabled.disabled.marker == "nightly"
    assert len(processes(world)) == 3
    declare(world)  # a deployment does not enable it
    assert get(world).disabled is not None
    with pytest.raises(InputError, match="is disabled: failed with the code 30101 3 times in a row"):
        Schedules(world.app.resources).trigger("nightly", "")
    Schedules(world.app.resources).enable("nightly", "the host is back")
    due(world)
    scan(world)
    assert len(processes(world)) == 4 and get(world).failing is None


def test_another_code_in_between_does_not(world: World) -> None:
    make(world, retry_across_count=3)
    for code in (RETRIABLE, RETRIABLE, RETRIABLE + 1, RETRIABLE, RETRIABLE):
        scan(world)
        break_(world, code)
        due(world)
    scan(world)
    assert get(world).disabled is None and len(processes(world)) == 6


def test_trigger_respects_what_runs(world: World) -> None:
    make(world)
    operator = Schedules(world.app.resources, by="me@here")
    result = operator.trigger("nightly", "a question")
    assert result.process is not None and result.triggered
    with pytest.raises(InputError, match="still runs, and overlap=skip allows one at a time; --force"):
        operator.trigger("nightly", "")
    forced = operator.trigger("nightly", "", force=True)
    assert forced.process != result.process
    assert [one.what for one in get(world).changes] == ["trigger", "trigger"]
    assert {process["state"] for process in processes(world).values()} == {ProcessState.RUNNING}


def test_a_paused_one_can_be_triggered_and_stays_paused(world: World) -> None:
    make(world)
    operator = Schedules(world.app.resources)
    operator.pause("nightly", "an audit")
    assert operator.trigger("nightly", "").process is not None
    after = get(world)
    assert after.paused is not None and after.recovery_time is None
    scan(world)
    assert len(processes(world)) == 1


def test_added_by_an_operator_and_removed(world: World) -> None:
    def nightly() -> None: ...

    world.app.process()(nightly)
    world.tell()
    operator = Schedules(world.app.resources)
    with pytest.raises(InputError, match="no process type is named 'nightlyy'; did you mean 'nightly'"):
        operator.add("twice", "nightlyy", {"schedule": "12h"}, "")
    operator.add("twice", "nightly", {"schedule": "12h"}, "")
    with pytest.raises(InputError, match="no worker that serves nightly has read it yet"):
        operator.trigger("twice", "")
    with pytest.raises(InputError, match="there is one of this name"):
        operator.add("twice", "nightly", {"schedule": "12h"}, "")
    with pytest.raises(InputError, match="the code has no schedule for it"):
        operator.unset("twice", ["schedule"], "")
    operator.remove("twice")
    with pytest.raises(InputError, match="no schedule is named 'twice'; there is none yet"):
        operator.get("twice")


def test_one_of_the_code_is_not_removed(world: World) -> None:
    make(world)
    with pytest.raises(InputError, match="is declared by the code of nightly, and would be back"):
        Schedules(world.app.resources).remove("nightly")


def test_a_scanner_of_another_application_starts_what_was_told(world: World) -> None:
    """Whose keys are known it starts; of others it does not even know whether there are some."""
    due_now = make(world)
    assert due_now.keyed is not None
    untold = due_now.evolve(keyed=None)
    assert world.store.schedules.save(untold)
    assert ScheduleScanner(world.app.resources, world.app.outbox).run_once().looked_at == 0
    assert look_at(world.app.resources, get(world)) is None
    scan(world)
    assert outcomes(world) == ["started"]


def keyed(world: World, **said: Any) -> None:
    def nightly(database: str = "shop") -> str:
        return database

    world.app.process(schedule="1h", key=lambda database: database, **said)(nightly)
    declare(world)
    due(world)


def test_its_processes_have_the_key_of_their_arguments(world: World) -> None:
    keyed(world, schedule_arguments={"database": "books"})
    scan(world)
    (process,) = processes(world).values()
    assert process["key"] == "books"
    Schedules(world.app.resources).set("nightly", {"arguments": {"database": "toys"}}, "")
    assert get(world).keyed is None, "only the application can tell"
    declare(world)
    assert (told := get(world).keyed) is not None and told.key == "toys"


def test_a_key_function_that_raises_is_a_slot_refused(world: World) -> None:
    def nightly() -> None: ...

    world.app.process(schedule="1h", key=lambda: {}["none"])(nightly)
    declare(world)
    due(world)
    scan(world)
    (result,) = get(world).recent
    assert result.outcome is SlotOutcome.REFUSED and "its key function raised KeyError" in (result.reason or "")


def marker(world: World, name: str = "nightly") -> Marker | None:
    return world.store.markers.find(name)


def fail(world: World, code: int) -> None:
    """End the last instance with this code, as `break_off` does."""
    *_, last = instances(world.app.resources, get(world))
    assert break_off(world.app.resources, last, ErrorInfo(kind="E", message="m", code=code), restarts=0)


def test_a_failure_for_good_leaves_a_marker_and_the_schedule_is_disabled(world: World) -> None:
    """Without a word on retry across instances: each broken process of a type with markers leaves one."""
    make(world)
    scan(world)
    fail(world, 40000)
    assert marker(world) is not None
    due(world)
    scan(world)
    disabled = get(world).disabled
    assert disabled is not None and disabled.marker == "nightly"
    assert len(processes(world)) == 1 and outcomes(world) == ["started"]


def test_markers_are_on_for_what_is_scheduled_and_can_be_switched_off(world: World) -> None:
    make(world, markers=False)
    scan(world)
    fail(world, 40000)
    due(world)
    scan(world)
    assert marker(world) is None and outcomes(world) == ["started", "started"]


def test_instances_that_outlive_the_next_slot_are_looked_at_too(world: World) -> None:
    """Where several may run, the last one always does when its schedule is looked at."""
    make(world, overlap="allow", retry_across_count=1)
    scan(world)
    first = get(world).last_process
    due(world)
    scan(world)
    assert get(world).beside == (first,)
    oldest, _ = instances(world.app.resources, get(world))
    assert break_off(world.app.resources, oldest, ErrorInfo(kind="E", message="m", code=RETRIABLE), restarts=0)
    assert marker(world) is None, "that is the schedule's to say"
    due(world)
    scan(world)
    left = marker(world)
    assert left is not None and left.process == first
    assert get(world).disabled is not None and len(processes(world)) == 2


def test_a_retriable_failure_leaves_none_while_the_next_instance_may_do_better(world: World) -> None:
    make(world, retry_across_count=2)
    scan(world)
    fail(world, RETRIABLE)
    assert marker(world) is None
    due(world)
    scan(world)
    assert outcomes(world) == ["started", "started"] and get(world).disabled is None
    fail(world, RETRIABLE)
    assert marker(world) is None, "that is the schedule's to say"
    due(world)
    scan(world)
    left = marker(world)
    assert left is not None and (left.code, left.process) == (RETRIABLE, get(world).last_process)
    assert get(world).disabled is not None


@pytest.mark.parametrize("how", ["schedule enable", "marker clear"])
def test_clearing_the_marker_and_enabling_the_schedule_are_one(world: World, how: str) -> None:
    test_a_failure_for_good_leaves_a_marker_and_the_schedule_is_disabled(world)
    operator = Schedules(world.app.resources, by="me@here")
    if how == "marker clear":
        clear_marker(world.app.resources, "nightly", "the host is back", "me@here")
        look_at(world.app.resources, get(world))  # within seconds, by its deadline
    else:
        operator.enable("nightly", "the host is back")
    assert marker(world) is None
    after = get(world)
    assert after.disabled is None and after.changes[-1].by == "me@here"
    assert after.changes[-1].reason.endswith("the host is back")
    due(world)
    scan(world)
    assert outcomes(world) == ["started", "started"]


def test_a_marker_stands_and_the_schedule_stays_disabled(world: World) -> None:
    test_a_failure_for_good_leaves_a_marker_and_the_schedule_is_disabled(world)
    for _ in range(3):
        look_at(world.app.resources, get(world))
    found = get(world)
    assert found.disabled is not None and found.recovery_time is not None


def test_cut_off_between_the_marker_and_the_schedule_both_are_there(world: World) -> None:
    make(world, retry_across_count=1)
    scan(world)
    fail(world, RETRIABLE)
    due(world)
    with patch.object(world.store.schedules, "save", side_effect=Died), pytest.raises(Died):
        scan(world)
    assert marker(world) is not None and get(world).disabled is None
    scan(world)
    assert get(world).disabled is not None and len(processes(world)) == 1


def test_cut_off_between_the_clearing_and_the_enabling_it_is_enabled(world: World) -> None:
    test_a_failure_for_good_leaves_a_marker_and_the_schedule_is_disabled(world)
    with patch.object(world.store.schedules, "save", side_effect=Died), pytest.raises(Died):
        Schedules(world.app.resources).enable("nightly", "the host is back")
    assert marker(world) is None and get(world).disabled is not None
    look_at(world.app.resources, get(world))
    assert get(world).disabled is None


def test_the_marker_of_another_process_refuses_slots_and_disables_nothing(world: World) -> None:
    """Of the same type and key, which somebody else started."""
    make(world)
    process_id = world.start("nightly")
    other = world.store.processes.get_committed_brief(process_id)
    assert other is not None
    break_off(world.app.resources, other, ErrorInfo(kind="E", message="m", code=40000), restarts=0)
    scan(world)
    (result,) = get(world).recent
    assert result.outcome is SlotOutcome.REFUSED and (result.reason or "").startswith("FAILED_ADMIN: there is a marker")
    assert get(world).disabled is None
    clear_marker(world.app.resources, "nightly", "the host is back")
    due(world)
    scan(world)
    assert outcomes(world) == ["refused", "started"]


def test_a_type_that_is_disabled_is_a_slot_refused(world: World) -> None:
    make(world)
    ProcessTypeOverrides(world.app.resources).disable("nightly", "an audit")
    scan(world)
    (result,) = get(world).recent
    assert result.outcome is SlotOutcome.REFUSED and (result.reason or "").startswith("DISABLED: process type nightly")


@pytest.mark.parametrize(
    "spoilt",
    [
        {"schedule": "garbage in"},
        {"schedule": "* * * * *", "timeZone": "Mars/Base"},
        {"schedule": "1h", "jitter": 1e300},
    ],
)
def test_one_that_nobody_can_work_with_holds_up_no_other(world: World, spoilt: dict[str, Any]) -> None:
    """Of another version, or where this machine's time zones are older; and due before the one that is well."""
    made = make(world)
    ago = world.store.now() - timedelta(hours=1)
    odd = {"_id": "odd", "type": "nightly", "code": spoilt, "keyed": {"arguments": "[[],{}]"}, "version": 0}
    world.store.database["schedules"].insert_one({**odd, "nextSlot": ago, "recoveryTime": ago})
    scan(world)
    assert outcomes(world) == ["started"] and get(world).last_slot == made.next_slot
    assert scan(world).looked_at == 0, "it is postponed"


def test_a_database_that_is_away_cuts_the_scan_off_and_the_next_goes_on(world: World) -> None:
    make(world)
    with patch.object(occurrences.Starts, "start", side_effect=ServerUnavailable("not confirmed")):
        result = ScheduleScanner(world.app.resources, world.app.outbox, Keys(world.app.actors)).run_once()
    assert result.error is not None and "not confirmed" in result.error
    scan(world)
    assert outcomes(world) == ["started"]


def test_no_operators_word_keeps_a_worker_from_its_start(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The code's new jitter does not go with an operator's interval; and a name is taken."""
    make(world)
    Schedules(world.app.resources).set("nightly", {"schedule": "5m"}, "")
    world.app.schedules["nightly"] = plan_of({"schedule": "1h", "jitter": "10m"}, "a test")
    declare(world)
    assert "schedule nightly is not changed" in caplog.text and get(world).plan.jitter == 0

    def weekly() -> None: ...

    world.app.process()(weekly)
    world.tell()
    with pytest.raises(InputError, match="is the name of another process type"):
        Schedules(world.app.resources).add("weekly", "nightly", {"schedule": "1h"}, "")


def test_the_marker_of_another_process_is_not_taken_for_that_of_an_instance(world: World) -> None:
    """The instance failed for what may pass, and the next one is to see; once the other's marker is cleared."""
    make(world, retry_across_count=5)
    scan(world)
    fail(world, RETRIABLE)
    other = world.store.processes.get_committed_brief(world.start("nightly"))
    assert other is not None
    break_off(world.app.resources, other, ErrorInfo(kind="E", message="m", code=40000), restarts=0)
    due(world)
    scan(world)
    assert outcomes(world) == ["started", "refused"] and get(world).disabled is None


def test_a_schedule_that_a_setting_leaves_out_is_none(world: World) -> None:
    def nightly() -> None: ...

    actor = world.app.process(schedule=None, time_zone="Europe/Berlin")(nightly)
    assert world.app.schedules == {} and actor.process_type is not None and not actor.process_type.markers


def test_what_is_declared_wrongly_is_told_at_once_and_not_registered(world: World) -> None:
    def nightly(database: str) -> None: ...

    with pytest.raises(InputError, match="process type nightly: schedule='often': is neither"):
        world.app.process(schedule="often")(nightly)
    with pytest.raises(InputError, match="database"):
        world.app.process(schedule="1h")(nightly)
    with pytest.raises(InputError, match="did you mean 'schedule_arguments'"):
        world.app.process(schedule="1h", schedule_argument={"database": "shop"})(nightly)
    assert world.app.schedules == {} and "nightly" not in world.app.actors
