"""Which slots hang and when they are freed: by the board and by what MongoDB says of their claims."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from pymongo import WriteConcern

from recovery import Settings
from recovery.errors import StoreTimeout, StoreUnavailable
from recovery.records import Decision, DecisionState, HungSlot, Outcome, to_document
from recovery.store import layout
from recovery.store.client import Document
from recovery.store.lifecycle.decisions import Decisions
from recovery.store.views.lifeline_queries import Claim
from recovery.worker.slots import hung_slots as hung
from recovery.worker.slots.board import Board, Cell
from recovery.worker.slots.hung_slots import HungSlots, by_ending
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.world import World

TIMEOUT = 10.0
PASS = "mine"


class FakeBoard(Board):
    """What a test says."""

    def __init__(self) -> None:
        self.running: list[Cell] = []
        self.count = 3

    def enter(self, decision: Decision, timeout: float) -> None:
        raise AssertionError(f"{decision.id}, {timeout}: nothing runs here")

    def leave(self) -> None:
        raise AssertionError("nothing ran here")

    def cells(self) -> list[Cell]:
        return list(self.running)

    def slots(self) -> int:
        return self.count


class Bench:
    """A worker's slots, its parent's looks, and the time."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.board, self.now = world, FakeBoard(), 1000.0
        self.freed: list[tuple[str, str]] = []
        self.frees = True
        monkeypatch.setattr(hung, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.looks = HungSlots(world.app, self.board, "w@host", self.free)
        world.store.actors.save([world.app.actor("render")(lambda: None).preferences])

    def free(self, cell: Cell, reason: str, note: Callable[[], None]) -> None:
        if self.frees:
            note()
            self.freed.append((cell.claim.decision_id, reason))

    def runs(self, task: str, since: float = 0.0) -> Cell:
        """A slot that has run this task under the pass `mine` for `since` seconds, and has its claim."""
        claim = Claim(f"p/{task}", PASS, 1)
        place = len(self.board.running)
        cell = Cell(place, 1, 10 + place, "render", claim, TIMEOUT, self.now - since)
        self.board.running.append(cell)
        self.becomes(task)
        return cell

    def becomes(
        self, task: str, state: DecisionState = DecisionState.WORKING, held: str = PASS, attempts: int = 1
    ) -> None:
        """Its decision is this, and a majority has it."""
        outcome = Outcome(pass_key=held, value="1") if state is DecisionState.FINISHED else None
        decision = Decision(
            id=f"p/{task}", actor="render", state=state, pass_key=held, attempts=attempts, outcome=outcome,
            recovery_time=self.world.store.now(),
        )  # fmt: skip
        decisions = self.world.store.database["decisions"].with_options(write_concern=WriteConcern("majority"))
        decisions.replace_one({"_id": decision.id}, to_document(decision), upsert=True)

    def writes(self, task: str, change: Document | None) -> None:
        """Somebody changes its decision, to whatever, or removes it, and a majority has that."""
        decisions = self.world.store.database["decisions"].with_options(write_concern=WriteConcern("majority"))
        if change is None:
            decisions.delete_one({"_id": f"p/{task}"})
        else:
            decisions.update_one({"_id": f"p/{task}"}, change, bypass_document_validation=True)

    def passes(self, seconds: float) -> int:
        self.now += seconds
        return self.looks.look_once()


@pytest.fixture
def bench(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Bench:
    world = World(emptied)
    layout.create(world.store.database)
    return Bench(world, monkeypatch)


LOSES = [
    pytest.param({"state": DecisionState.QUEUED, "held": "another"}, id="queued again"),
    pytest.param({"held": "another", "attempts": 2}, id="another attempt's"),
    pytest.param({"state": DecisionState.WAITING}, id="waiting again"),
]


@pytest.mark.parametrize("how", LOSES)
def test_who_lost_its_claim_is_given_as_much_time_again(bench: Bench, how: dict[str, object]) -> None:
    bench.runs("a", since=TIMEOUT + 0.1)
    bench.becomes("a", **how)  # type: ignore[arg-type]
    assert bench.passes(0) == 0
    (told,) = bench.looks.report()
    assert told == HungSlot(actor="render", task="p/a", since=told.since)
    age = bench.world.store.now() - told.since
    assert TIMEOUT < age.total_seconds() < TIMEOUT + 5
    assert bench.passes(TIMEOUT - 0.1) == 0
    assert bench.passes(0.2) == 1
    assert bench.freed == [("p/a", "it has lost its task for another 10 s")]
    assert bench.looks.report() == ()


def test_who_has_its_claim_may_go_on(bench: Bench) -> None:
    """By heartbeats, for as long as it likes, and be the worker full."""
    bench.board.count = 1
    bench.runs("a", since=100 * TIMEOUT)
    assert bench.passes(100 * TIMEOUT) == 0 and bench.looks.report() == ()


def test_who_is_within_its_time_is_not_asked_for(bench: Bench) -> None:
    """Its claim was lost by something else: a worker that was silent. It may be as healthy as it can."""
    bench.board.count = 1
    bench.runs("a", since=TIMEOUT - 0.1)
    bench.becomes("a", DecisionState.QUEUED, "another")
    assert bench.passes(0) == 0 and bench.looks.report() == ()


@pytest.mark.parametrize("held", ["another", PASS])
def test_whose_task_has_ended_is_freed_at_once(bench: Bench, held: str) -> None:
    bench.runs("a", since=TIMEOUT + 0.1)
    bench.becomes("a", DecisionState.FINISHED, held, attempts=2)
    assert bench.passes(0) == 1
    assert bench.freed == [("p/a", "its task has ended without it")]


def test_where_no_slot_is_free_one_is_freed_at_once(bench: Bench) -> None:
    """The one that has run for the longest; that is one, and the other has its time."""
    bench.runs("a", since=TIMEOUT + 1)
    bench.runs("b", since=TIMEOUT + 2)
    bench.runs("healthy", since=1)
    for task in ("a", "b"):
        bench.becomes(task, DecisionState.QUEUED, "another")
    assert bench.passes(0) == 1
    assert bench.freed == [("p/b", "it has lost its task, and no slot is free")]
    assert bench.looks.count() == 2, "one that is not gone yet, and one that hangs"
    assert bench.passes(0.5) == 0, "what was freed is not freed again, nor taken for busy"
    del bench.board.running[1]
    assert bench.passes(0.5) == 0
    bench.runs("next", since=0)
    assert bench.passes(0.5) == 1
    assert [task for task, _ in bench.freed] == ["p/b", "p/a"]
    (kept,) = bench.world.store.hung.freed()
    assert (kept.id, kept.slots, kept.worker, kept.task) == ("render", 2, "w@host", "p/a")


def test_who_goes_on_is_forgotten(bench: Bench) -> None:
    """It came back just before it was freed: the next call of its slot begins with its own time."""
    first = bench.runs("a", since=TIMEOUT + 1)
    bench.becomes("a", DecisionState.QUEUED, "another")
    bench.passes(0)
    bench.frees = False  # since the slot has moved on
    bench.passes(TIMEOUT + 1)
    assert bench.world.store.hung.freed() == []
    bench.board.running = [Cell(0, 2, first.pid, "render", first.claim, TIMEOUT, bench.now)]
    assert bench.passes(0.5) == 0 and bench.looks.report() == ()


@pytest.mark.parametrize("place", [0, 1], ids=["nothing", "another"])
def test_who_ends_while_mongodb_is_asked_does_not_hang(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The end that is read is its own. Nor does the slot of a thread that runs `another` task by then."""
    cell = bench.runs("a", since=TIMEOUT + 1)
    real = bench.world.store.hung.fates

    def fates(claims: list[Claim]) -> object:
        bench.becomes("a", DecisionState.FINISHED)
        bench.board.running.remove(cell)
        if place:
            bench.runs("next")
        return real(claims)

    monkeypatch.setattr(bench.world.store.hung, "fates", fates)
    assert bench.passes(0) == 0
    assert (bench.freed, bench.looks.report(), bench.looks.count()) == ([], (), 0)


@pytest.mark.parametrize("returns", [None, "before", "meanwhile"])
def test_a_worker_ends_only_for_a_slot_that_hangs_at_that_moment(
    bench: Bench, caplog: pytest.LogCaptureFixture, returns: str | None
) -> None:
    """The slot returns before the worker begins to end, or while it is noted that the slot is freed."""
    cell = bench.runs("a", since=TIMEOUT + 1)
    done: list[str] = []

    def note() -> None:
        done.append("noted")
        if returns == "meanwhile":
            bench.board.running.remove(cell)

    if returns == "before":
        bench.board.running.remove(cell)
    by_ending(bench.board, lambda: done.append("ended"))(cell, "it has lost its task", note)
    assert done == {None: ["noted", "ended"], "before": [], "meanwhile": ["noted"]}[returns]
    assert ("render p/a hangs" in caplog.text) == (returns is None)
    assert ("render p/a returned just before" in caplog.text) == (returns == "meanwhile")


OLDER = [
    pytest.param({"$set": {"state": "queued", "attempts": 0}}, id="before the claim"),
    pytest.param({"$set": {"state": "finished", "pass": "earlier", "attempts": 0}}, id="before a restart"),
    pytest.param({"$set": {"state": "queued", "pass": "earlier", "attempts": "x"}}, id="damaged"),
    pytest.param({"$set": {"state": "working", "pass": "earlier"}}, id="while an earlier claim was refused"),
    pytest.param(None, id="not there yet"),
]


@pytest.mark.parametrize("change", OLDER)
def test_what_a_majority_does_not_know_yet_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: Document | None
) -> None:
    """Then it counts: here the attempt has its claim."""
    bench.board.count = 1
    bench.runs("a", since=TIMEOUT + 1)
    bench.writes("a", change)
    real = Decisions.catch_up

    def learns(decisions: Decisions) -> None:
        bench.becomes("a")
        real(decisions)

    monkeypatch.setattr(Decisions, "catch_up", learns)
    assert bench.passes(0) == 0 and bench.looks.report() == ()


@pytest.mark.parametrize("change", OLDER)
def test_what_a_majority_never_learns_was_lost(bench: Bench, change: Document | None) -> None:
    """With a primary that died. Or somebody removed the record."""
    bench.board.count = 1
    bench.runs("a", since=TIMEOUT + 1)
    bench.writes("a", change)
    assert bench.passes(0) == 1


def two_run(bench: Bench, change: Document | None) -> None:
    """Both past their time, in all slots there are: `a`, whose record is changed, and `b`, whose claim is lost."""
    bench.board.count = 2
    bench.runs("a", since=TIMEOUT + 2)
    bench.runs("b", since=TIMEOUT + 1)
    bench.writes("a", change)
    bench.becomes("b", DecisionState.QUEUED, "another")


@pytest.mark.parametrize("change", OLDER)
def test_while_a_majority_lags_behind_nothing_is_concluded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, change: Document | None
) -> None:
    """But for what is known: that holds up no other."""
    two_run(bench, change)

    def lags(_: Decisions) -> None:
        raise StoreTimeout("waiting for replication timed out")

    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "catch_up", lags)
        assert bench.passes(0) == 1
    assert [task for task, _ in bench.freed] == ["p/b"] and bench.looks.report() == ()
    assert "render p/a runs past its time, and it is unknown whether it has its claim: a majority" in caplog.text


DAMAGED = [
    pytest.param({"$unset": {"state": ""}}, id="no state"),
    pytest.param({"$set": {"state": 5}}, id="a state of another type"),
    pytest.param({"$set": {"state": "hanging"}}, id="a state that is none"),
    pytest.param({"$set": {"state": ["working"]}}, id="a list"),
    pytest.param({"$unset": {"pass": ""}}, id="no pass"),
]


@pytest.mark.parametrize("change", DAMAGED)
def test_a_record_that_can_not_be_read_holds_up_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, change: Document
) -> None:
    """It counts as held, and is told of now and then."""
    two_run(bench, change)
    assert bench.passes(0) == 1
    del bench.board.running[1]
    assert [task for task, _ in bench.freed] == ["p/b"]
    for _ in range(3):
        assert bench.passes(TIMEOUT) == 0 and bench.looks.report() == ()
    assert caplog.text.count("whether it has its claim: its record can't be read") == 1
    bench.passes(hung.SAY_EVERY)
    assert caplog.text.count("whether it has its claim: its record can't be read") == 2


def test_a_record_that_is_damaged_meanwhile_keeps_what_was_seen(bench: Bench) -> None:
    """A claim that was lost does not come back."""
    bench.runs("a", since=TIMEOUT + 1)
    bench.becomes("a", DecisionState.QUEUED, "another")
    assert bench.passes(0) == 0
    bench.writes("a", {"$unset": {"state": ""}})
    assert bench.passes(TIMEOUT) == 0 and len(bench.looks.report()) == 1
    bench.becomes("a", DecisionState.QUEUED, "another")
    assert bench.passes(0.1) == 1


def test_nothing_is_freed_upon_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.board.count = 1
    bench.runs("a", since=TIMEOUT + 1)
    bench.becomes("a", DecisionState.QUEUED, "another")

    def away(_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(bench.world.store.hung, "fates", away)
        with pytest.raises(StoreUnavailable):
            bench.passes(0)
    assert bench.freed == []
    assert bench.passes(0) == 1


def test_a_look_costs_microseconds_while_nothing_is_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And asks nobody."""
    for task in "abc":
        bench.runs(task, since=TIMEOUT - 1)
    monkeypatch.setattr(bench.world.store.hung, "fates", None)
    began = time.perf_counter()
    for _ in range(100):
        bench.passes(0)
    assert time.perf_counter() - began < 0.5


def test_what_another_program_wrote_of_freed_slots_hides_no_others(bench: Bench) -> None:
    store = bench.world.store
    store.hung.note_freed("render", "w", "p/a")
    store.database["actors"].insert_many([{"_id": "odd", "freed": {"at": 5}}, {"_id": "odder", "freed": "often"}])
    assert [one.id for one in store.hung.freed()] == ["render"]
    store.actors.save([bench.world.app.actors["render"].preferences])
    assert [one.id for one in store.hung.freed()] == ["render"], "a worker that starts keeps it"


def test_who_runs_something_is_looked_at_oftener(bench: Bench) -> None:
    pauses = [bench.looks._look()]
    bench.runs("a")
    pauses.append(bench.looks._look())
    bench.board.running.clear()
    pauses.append(bench.looks._look())
    assert pauses == [hung.LOOK_IDLE, hung.LOOK_EVERY, hung.LOOK_IDLE]
