"""How many tasks a slot takes at once, and how soon it is seen that one is slow."""

from __future__ import annotations

import threading

import pytest

from recovery.engine.run import hand as hands
from recovery.engine.run.hand import Hand, Watch
from recovery.engine.run.pace import ALONE, BATCH_SECONDS, LEAST_SLOW, SHORT, Pace
from recovery.engine.steps import ClaimedTask, Ended
from recovery.records import Decision, Task
from tests.waiting import wait_until


def rooms(pace: Pace, count: int) -> list[int]:
    return [pace.room("a") for _ in range(count)]


def test_one_until_they_prove_quick_and_then_twice_as_many_each_time() -> None:
    pace = Pace(64)
    assert (rooms(pace, 2), pace.is_quick("a")) == ([1, 1], False)
    pace.note("a", 0.0001)
    assert (rooms(pace, 7), pace.is_quick("a")) == ([2, 4, 8, 16, 32, 64, 64], True)
    assert pace.room("another") == 1


def test_no_more_than_take_so_long_together() -> None:
    pace = Pace(64)
    pace.note("a", 0.004)
    assert rooms(pace, 6)[-1] == int(BATCH_SECONDS / 0.004)


def test_a_slow_one_has_them_taken_one_by_one_for_a_while() -> None:
    pace = Pace(64)
    for _ in range(10):
        pace.note("a", 0.0001)
    rooms(pace, 6)
    pace.note("a", 2.0)
    assert (pace.room("a"), pace.is_quick("a")) == (1, False)
    needed = 0
    while pace.room("a") == 1:
        pace.note("a", 0.0001)
        needed += 1
    assert 10 <= needed < 40
    assert rooms(pace, 1) == [4], "and then it begins small"


def test_one_that_is_not_to_be_run_with_others() -> None:
    pace = Pace(64)
    pace.note("a", 0.0001)
    pace.note_unfit("a")
    assert pace.room("a") == 1
    assert (pace.is_quick("a"), pace.fits("a")) == (True, 0)
    for _ in range(ALONE):
        assert pace.room("a") == 1
        pace.note("a", 0.0001)
    assert pace.fits("a") == 64
    assert pace.room("a") == 2


def test_one_is_quick_that_takes_less_time_than_the_writing_of_its_end() -> None:
    pace = Pace(64)
    pace.note("a", 0.015)
    pace.note("b", 1.1 * LEAST_SLOW)
    assert not pace.is_quick("a")
    for _ in range(30):
        pace.note_around(10.0)
    assert (pace.is_quick("a"), pace.is_quick("b")) == (True, False)
    assert rooms(pace, 6)[-1] == pace.fits("a") == int(BATCH_SECONDS / 0.015)
    for _ in range(30):
        pace.note_around(0.001)
    assert not pace.is_quick("a")


def test_after_a_short_one_a_slot_goes_on_by_itself() -> None:
    pace = Pace(64)
    assert not pace.is_short("a"), "nothing is known of it"
    pace.note("a", SHORT)
    assert (pace.is_short("a"), pace.room("a")) == (True, 1)
    pace.note("a", 2.0)
    assert not pace.is_short("a")
    for _ in range(10):
        pace.note("a", 0.05)
    assert pace.is_short("a")


def test_one_by_one_where_it_is_set_so() -> None:
    pace = Pace(1)
    pace.note("a", 0.0001)
    assert (rooms(pace, 3), pace.is_short("a")) == ([1, 1, 1], False)


def claimed(*names: str) -> list[ClaimedTask]:
    return [ClaimedTask(Decision(id=f"p/{name}", actor="a", pass_key=name)) for name in names]


def ended(here: ClaimedTask) -> Ended:
    return Ended(Task(id=here.decision.id, actor="a", args=""), here.decision)


def test_what_is_taken_out_of_a_hand_is_no_longer_in_it() -> None:
    hand = Hand(claimed("a", "b", "c"))
    first = hand.next()
    assert first is not None
    hand.keep(first, ended(first))
    assert hand.next() is not None
    kept, left = hand.empty()
    assert ([one.decision.id for _, one in kept], [one.id for one in left]) == (["p/a"], ["p/c"])
    assert (hand.empty(), hand.next()) == (([], []), None)


def test_no_further_one_is_begun_after_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "LONGEST", 0.0)
    hand = Hand(claimed("a", "b"))
    assert hand.next() is None
    assert [one.id for one in hand.empty()[1]] == ["p/a", "p/b"]


def test_whether_a_task_may_begin_is_asked_while_others_look_at_the_hand() -> None:
    """It may be asked of a server that does not answer: the one thread that looks at all hands waits for none."""
    hand, asked, answered = Hand(claimed("a", "b")), threading.Event(), threading.Event()
    begun: list[ClaimedTask | None] = []

    def may_begin(_: str) -> bool:
        asked.set()
        return answered.wait(30)

    runs = threading.Thread(target=lambda: begun.append(hand.next(may_begin)))
    runs.start()
    assert asked.wait(10)
    seen: list[object] = []
    looks = threading.Thread(target=lambda: seen.extend((hand.slow(), hand.empty())))
    looks.start()
    looks.join(10)
    answered.set()
    runs.join(30)
    assert [seen[0], [one.id for one in seen[1][1]]] == [None, ["p/a", "p/b"]]  # type: ignore[index]
    assert begun == [None], "it was emptied meanwhile"


def test_a_watch_relieves_a_hand_in_which_one_is_slow_once() -> None:
    watch, hand, relieved = Watch(), Hand(claimed("a", "b", "c")), threading.Event()
    seen: list[tuple[str, list[str]]] = []

    def relieve(one: Hand, slow: Decision) -> None:
        seen.append((slow.id, [left.id for left in one.empty()[1]]))
        relieved.set()

    with watch.over(hand, relieve):
        assert hand.next() is not None
        assert relieved.wait(10), "it is slow by now"
        other = Hand(claimed("d", "e"))
        with watch.over(other, relieve):
            assert other.next() is not None
            wait_until(lambda: len(seen) == 2, 10, "another hand")
    assert seen == [("p/a", ["p/b", "p/c"]), ("p/d", ["p/e"])]


def test_an_error_ends_no_watch() -> None:
    watch, seen = Watch(), list[str]()

    def fails(_: Hand, slow: Decision) -> None:
        seen.append(slow.id)
        raise RuntimeError("cannot be written")

    for name in ("a", "b"):
        hand = Hand(claimed(name, "more"))
        with watch.over(hand, fails):
            assert hand.next() is not None
            wait_until(lambda name=name: f"p/{name}" in seen, 10, "a look at it")  # type: ignore[misc]


def test_an_outage_of_one_hand_delays_no_other() -> None:
    watch, held, goes_on = Watch(), Hand(claimed("a", "b")), threading.Event()
    seen: list[str] = []

    def relieve(one: Hand, slow: Decision) -> None:
        seen.append(slow.id)
        if one is held:
            assert goes_on.wait(20)
        one.empty()

    try:
        with watch.over(held, relieve):
            assert held.next() is not None
            wait_until(lambda: seen == ["p/a"], 10, "the hand whose server is away")
            for name in ("c", "d"):
                other = Hand(claimed(name, "more"))
                with watch.over(other, relieve):
                    assert other.next() is not None
                    wait_until(lambda name=name: seen[-1] == f"p/{name}", 10, "another hand")  # type: ignore[misc]
        assert seen == ["p/a", "p/c", "p/d"], "once at a time"
    finally:
        goes_on.set()


def test_without_a_further_thread_the_watch_relieves_a_hand_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    start, seen = threading.Thread.start, list[str]()

    def starts(thread: threading.Thread) -> None:
        if thread.name == "hand":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    watch, hand = Watch(), Hand(claimed("a", "b"))
    with watch.over(hand, lambda _, slow: seen.append(f"{slow.id} by {threading.current_thread().name}")):
        assert hand.next() is not None
        wait_until(lambda: "p/a by hands" in seen, 10, "its relief")
