"""What a process of ours knows of settings: not asked for with each task, and not lost in an outage."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from recovery.errors import StoreUnavailable
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.settings import Settings
from recovery.store import Store
from recovery.store.lifecycle import preferences
from recovery.store.lifecycle.actors import Actors

ADD, ORDER = ActorPreferences(id="add"), ProcessTypePreferences(id="order")


@pytest.fixture(autouse=True)
def told(store: Store) -> None:
    store.actors.save([ADD])
    store.process_types.save([ORDER])


def count(monkeypatch: pytest.MonkeyPatch, act: Callable[[Actors], None] = lambda _: None) -> list[int]:
    """Notes each look at the stored actors."""
    looks, real = list[int](), Actors.stored

    def stored(self: Actors) -> object:
        looks.append(1)
        act(self)
        return real(self)

    monkeypatch.setattr(Actors, "stored", stored)
    return looks


def test_a_thousand_tasks_ask_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(monkeypatch)
    for _ in range(1000):
        assert store.preferences.actor(ADD) is ADD
        assert not store.preferences.is_blocked("add")
        assert store.preferences.task_timeouts() == {}
    assert len(looks) == 1


def test_what_is_set_is_known_after_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.preferences.actor(ADD) == ADD and store.preferences.process_type(ORDER) == ORDER
    store.actors.override("add", {"task_timeout": 5.0})
    store.process_types.override("order", {"process_timeout": 7.0})
    assert store.preferences.actor(ADD) == ADD and store.preferences.process_timeouts() == {}
    monkeypatch.setattr(preferences, "REFRESH", 0.0)
    store.preferences.invalidate()
    assert store.preferences.actor(ADD.evolve(worker_timeout=1)) == ADD.evolve(worker_timeout=1, task_timeout=5)
    assert store.preferences.process_type(ORDER) == ORDER.evolve(process_timeout=7)
    assert (store.preferences.task_timeouts(), store.preferences.process_timeouts()) == ({"add": 5}, {"order": 7})
    assert store.preferences.actor(ActorPreferences(id="unknown")) == ActorPreferences(id="unknown")


def test_unblocked_is_known_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the message that the parent takes again would be given back again, until the next refresh."""
    monkeypatch.setattr(preferences, "REFRESH_BLOCKED", 0.0)
    store.actors.block("add")
    assert store.preferences.is_blocked("add")
    store.actors.unblock("add")
    assert not store.preferences.is_blocked("add")


def test_in_an_outage_the_last_known_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.actors.override("add", {"task_timeout": 5.0})
    known = store.preferences.actor(ADD)

    def away(_: Actors) -> None:
        raise StoreUnavailable("away")

    looks = count(monkeypatch, away)
    store.preferences.invalidate()
    for _ in range(10):
        assert store.preferences.actor(ADD) == known
    assert len(looks) == 1, "nor is it asked for with each task"


def test_what_is_said_to_be_new_is_read_anew_by_all_that_were_forked(store: Store, emptied: Settings) -> None:
    """As a pool's children learn of it from their parent."""
    ready, told, seen = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        own = Store(emptied).preferences
        os.write(ready[1], b"-" if own.is_blocked("add") else b"+")
        os.read(told[0], 1)
        os.write(seen[1], b"blocked" if own.is_blocked("add") else b"begun")
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"+"
        store.actors.block("add")
        store.preferences.invalidate()
        os.write(told[1], b"!")
        assert os.read(seen[0], 10) == b"blocked"
    finally:
        os.waitpid(child, 0)


def test_who_asks_after_it_was_said_waits_for_the_answer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was read earlier does not replace it."""
    reads, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def held(_: Actors) -> None:
        reads.release()
        assert go_on.acquire(timeout=20)

    monkeypatch.setattr(preferences, "REFRESH_BLOCKED", 60.0)
    assert not store.preferences.is_blocked("add")
    looks = count(monkeypatch, held)
    with ThreadPoolExecutor(2) as threads:
        store.preferences.invalidate()
        first = threads.submit(store.preferences.is_blocked, "add")
        assert reads.acquire(timeout=20)
        store.actors.block("add")
        store.preferences.invalidate()
        second = threads.submit(store.preferences.is_blocked, "add")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)
        go_on.release(2)  # one of both reads once more
        assert second.result(timeout=20)
        assert first.result(timeout=20), "nor does who asked first go on with what was read earlier"
    assert len(looks) == 2


@pytest.mark.parametrize("words", [1, 100], ids=["once", "again and again"])
def test_a_word_that_comes_while_it_is_read_has_it_read_once_more(
    store: Store, monkeypatch: pytest.MonkeyPatch, words: int
) -> None:
    """Who asked before the word, and is answered after it, begins nothing by what held before. But nobody waits for
    ever, however many words come."""
    assert not store.preferences.is_blocked("add")
    real, left = Actors.stored, list(range(words))

    def stored(self: Actors) -> object:
        read = real(self)
        if left:
            left.pop()
            store.actors.block("add")
            store.preferences.invalidate()
        return read

    monkeypatch.setattr(Actors, "stored", stored)
    store.preferences.invalidate()
    assert store.preferences.is_blocked("add")
    assert len(left) == 0 if words == 1 else len(left) > words - 10


def test_where_nothing_was_ever_read_nothing_is_begun(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Actors) -> None:
        raise StoreUnavailable("away")

    looks = count(monkeypatch, away)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.preferences.is_blocked("add")
    assert len(looks) == 1, "nor is it asked for with each task"
    assert store.preferences.actor(ADD) == ADD, "what the code says holds"
