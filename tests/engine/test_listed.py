"""What is broken stays listed, whatever goes on while somebody takes off the list what was broken before.

A start task and its process as a whole are listed under one name: what was listed for the one life of a process must
not be taken for what was listed for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.engine.apply.interruption import list_again
from recovery.engine.end.breaking import break_process
from recovery.engine.operators.restart import restart_selected
from recovery.records import DecisionState, ErrorInfo, ProcessState
from recovery.records.ids import record_id
from recovery.store import Selection
from tests.waiting import wait_until
from tests.world import World, by_message_only

LATE = "ProcessTimeout"


class Shop:
    """`order` pays; each of the two fails while it is refused."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.refused, self._patch = world, {"pay"}, monkeypatch

        def try_to(what: str) -> None:
            if what in self.refused:
                raise ValueError(what)

        @world.app.actor()
        def pay() -> None:
            try_to("pay")

        @world.app.process()
        def order() -> Any:
            try_to("order")
            return pay.schedule()

        self.id = world.start(order)

    def run(self, *actors: str) -> None:
        """Take one message of each."""
        with by_message_only():
            for actor in actors:
                self.world.take_one(actor)

    def is_late(self) -> None:
        """As a scanner does it."""
        error = ErrorInfo(kind=LATE, message="too late")
        assert break_process(self.world.app.resources, self.id, 0, error)

    def at(self, step: str, act: Callable[[], None], *, after: bool = False) -> None:
        """Act once, when the next call of this step of the store is made, or is done."""
        collection, name = step.split(".")
        owner = getattr(self.world.store, collection)
        real = getattr(owner, name)

        def taken(*args: Any) -> Any:
            self._patch.setattr(owner, name, real)
            if not after:
                act()
            result = real(*args)
            if after:
                act()
            return result

        self._patch.setattr(owner, name, taken)

    def dies_at(self, step: str) -> None:
        """An operator restarts what failed, and is cut off."""

        def die() -> None:
            raise ConnectionError

        self.at(step, die)
        with pytest.raises(ConnectionError):
            self.restart()

    def restart(self) -> None:
        self.world.app.restart(self.id)

    def is_quiet(self) -> bool:
        """Whether nothing goes on by itself any more."""
        self.world.pump()
        self.world.scan()
        return all(one.state is DecisionState.FINISHED for one in self.world.decisions(self.id).values())

    @property
    def state(self) -> ProcessState:
        return self.world.process(self.id).state

    @property
    def listed(self) -> set[tuple[str, str]]:
        """(actor, kind of error)"""
        return {(one.actor, one.kind) for one in self.world.store.interruptions.of_process(self.id)}


@pytest.fixture
def shop(world: World, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(world, monkeypatch)


def comes_to_its_end(shop: Shop) -> None:
    """What is listed can be restarted, and then nothing is."""
    shop.refused.clear()
    restart_selected(shop.world.app.resources, Selection())
    assert shop.world.bring_to_end(shop.id).state is ProcessState.FINISHED
    assert shop.world.store.interruptions.count(Selection()) == 0


def test_late_while_an_operator_goes_on_with_a_restart_that_was_cut_off(shop: Shop) -> None:
    """The process runs again already, and what it broke for before is about to be listed no longer."""
    shop.run("order", "pay")
    shop.dies_at("restarts.reopen_graphs")
    shop.at("restarts.reopen_processes", shop.is_late, after=True)
    shop.restart()
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    comes_to_its_end(shop)


def test_broken_again_before_an_operator_read_what_is_listed(shop: Shop) -> None:
    """Another one had set it running."""
    shop.is_late()

    def again() -> None:
        shop.restart()
        shop.is_late()

    shop.at("interruptions.of_process", again)
    shop.restart()
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    comes_to_its_end(shop)


def test_a_task_fails_before_an_operator_read_what_is_listed(shop: Shop) -> None:
    """Of a process that broke as a whole; it is set running, and broken for that task."""
    shop.run("order")
    shop.is_late()
    shop.at("restarts.failed", lambda: shop.run("pay"), after=True)
    shop.restart()
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("pay", "ValueError")})
    comes_to_its_end(shop)


def test_the_start_fails_while_its_process_is_set_running(shop: Shop) -> None:
    """It fails for the first time, and the process is in its second life."""
    shop.refused = {"order"}
    shop.is_late()
    shop.at("restarts.failed", lambda: shop.at("restarts.failed", lambda: shop.run("order"), after=True), after=True)
    shop.restart()
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", "ValueError")})
    comes_to_its_end(shop)


def test_the_start_is_restarted_and_its_process_stays_broken_as_a_whole(shop: Shop) -> None:
    """Who restarted it was cut off: an operator has to set the process running."""
    shop.refused = {"order"}
    shop.is_late()
    shop.run("order")
    shop.dies_at("restarts.reopen_processes")
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    shop.refused.clear()
    wait_until(shop.is_quiet, 10, "what goes on by itself")
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    comes_to_its_end(shop)


def test_the_start_is_restarted_while_its_failure_is_applied(shop: Shop) -> None:
    """As above, and the apply sees that it is restarted."""
    shop.refused = {"order"}
    shop.is_late()
    shop.at("graphs.is_failed", lambda: shop.dies_at("restarts.reopen_processes"))
    shop.run("order")
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    comes_to_its_end(shop)


def test_the_start_goes_on_with_its_restart_that_was_cut_off(shop: Shop) -> None:
    """Its process runs again, and is listed still: until the start's end is applied."""
    shop.refused = {"order"}
    shop.run("order")
    shop.dies_at("interruptions.remove_before")
    assert (shop.state, shop.listed) == (ProcessState.RUNNING, {("order", "ValueError")})
    shop.refused.clear()
    assert shop.world.bring_to_end(shop.id).state is ProcessState.FINISHED
    assert shop.listed == set()


def test_the_start_fails_after_a_restart_while_its_process_is_listed_again(shop: Shop) -> None:
    """What its process broke for before was lost from the list."""
    shop.refused = {"order"}
    shop.is_late()
    shop.world.store.interruptions.remove_all([shop.id])

    def restart_and_fail() -> None:
        shop.restart()
        shop.run("order")

    shop.at("interruptions.add", restart_and_fail)
    assert not list_again(shop.world.app.resources, record_id(shop.id, "start"))
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", "ValueError")})
    comes_to_its_end(shop)


def test_the_start_fails_in_a_later_life_of_its_process(shop: Shop) -> None:
    """What is listed says how often the process was set running, and not how often its start was restarted."""
    shop.refused = {"order"}
    shop.is_late()
    shop.restart()
    shop.is_late()
    shop.run("order")
    assert (shop.state, shop.listed) == (ProcessState.BROKEN, {("order", LATE)})
    comes_to_its_end(shop)
