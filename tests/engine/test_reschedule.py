"""A coordinator that got a Failure schedules the failed task anew, with one call."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Backoff, Failure, reschedule
from recovery.errors import InputError, NotInActor
from recovery.records import ProcessState
from tests.world import World


def test_a_failed_task_is_done_again_with_its_arguments_and_options(world: World) -> None:
    calls: list[tuple[Any, ...]] = []
    amount = world.app.actor("amount")(lambda: 30)

    @world.app.actor()
    def charge(card: str, amount: int, *, currency: str) -> str:
        calls.append((card, amount, currency))
        if len(calls) < 3:
            raise ValueError("declined")
        return f"paid {amount} {currency}"

    @world.app.actor()
    def confirm(paid: Any) -> Any:
        return confirm.schedule(reschedule(paid)) if isinstance(paid, Failure) else paid

    @world.app.process()
    def order() -> Any:
        asked = charge.options(fallible=True, retry=Backoff(initial=7), context={"level": "gold"})
        return confirm.schedule(asked.schedule("visa", amount.schedule(), currency="EUR"))

    process_id = world.start(order)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert world.app.result(process_id, timeout=0) == "paid 30 EUR"
    assert calls == [("visa", 30, "EUR")] * 3
    tasks = (world.store.tasks.get(decision.id) for decision in world.decisions(process_id).values())
    charged = [task for task in tasks if task is not None and task.actor == "charge"]
    assert len(charged) == 3
    assert {(task.fallible, task.retry.initial if task.retry else None, task.context) for task in charged} == {
        (True, 7, '{"level":"gold"}')
    }


def test_it_may_wait_and_may_be_for_good(world: World) -> None:
    @world.app.actor()
    def charge() -> None:
        raise ValueError("declined")

    @world.app.actor()
    def confirm(paid: Any) -> Any:
        return reschedule(paid, delay="5m", fallible=False)

    @world.app.process()
    def order() -> Any:
        return confirm.schedule(charge.options(fallible=True).schedule())

    process_id = world.start(order)
    world.pump()
    again = [one for one in world.decisions(process_id).values() if one.actor == "charge" and one.state == "delayed"]
    assert [(one.delay, one.fallible) for one in again] == [(300, None)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("no failure",), r"reschedule\('no failure'\): must be the Failure"),
        ((Failure("E", "m", "charge", "no-task"),), "has no task 'no-task'"),
    ],
)
def test_what_is_no_failure_of_this_process(world: World, arguments: tuple[Any, ...], why: str) -> None:
    @world.app.process()
    def order() -> str:
        with pytest.raises(InputError, match=why):
            reschedule(*arguments)
        with pytest.raises(InputError, match="must be from 0 seconds"):
            reschedule(Failure("E", "m", "order", "start"), delay=-1)
        return "refused"

    assert world.run(order) == "refused"


def test_outside_an_actor() -> None:
    with pytest.raises(NotInActor, match=r"reschedule\(...\) was called outside a running actor"):
        reschedule(Failure("E", "m", "charge", "start"))
