"""Actors that fail: the process is broken and says by what, the siblings go on, and nothing is left live."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from recovery import ClaimLost, Recovery
from recovery.engine import finish_process
from recovery.errors import ProcessBroken
from recovery.records import Decision, DecisionState, Outcome, Process, ProcessState
from recovery.records.failure import fingerprint
from tests.faults import Died
from tests.store.writing import put
from tests.waiting import wait_until
from tests.world import World


class PaymentRefused(Exception):
    """An application's own error."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def broken(world: World, function: Any, *args: Any) -> Process:
    """Run a process that has to break, without a scanner."""
    process_id = world.start(world.app.process()(function), *args)
    world.pump()
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    return process


def of(world: World, actor: str) -> list[Decision]:
    found = world.store.database["decisions"].find({"actor": actor}).sort("_id")
    return [decision for document in found if (decision := world.store.decisions.get(document["_id"]))]


def test_an_error_breaks_the_process_with_all_that_is_known(world: World) -> None:
    @world.app.actor()
    def pay(amount: int) -> None:
        raise PaymentRefused(f"{amount} is too much é")

    def order(amount: int) -> Any:
        return pay.schedule(amount)

    process = broken(world, order, 7)
    error = process.error
    assert error is not None
    (failed,) = of(world, "pay")
    assert (error.kind, error.message, error.actor, error.task) == (
        "PaymentRefused", "7 is too much é", "pay", failed.task_id,
    )  # fmt: skip
    assert error.stack is not None
    assert error.stack.startswith("Traceback")
    assert 'raise PaymentRefused(f"{amount} is too much é")' in error.stack
    assert (failed.state, failed.recovery_time, failed.attempts) == (DecisionState.FINISHED, None, 1)
    assert failed.outcome is not None
    assert failed.outcome.error == error
    with pytest.raises(ProcessBroken, match=f"process {process.id}, task {failed.task_id}: PaymentRefused: 7 is too"):
        world.app.result(process.id)


def test_an_errors_fingerprint_is_of_the_applications_frames_alone(world: World) -> None:
    """Our own call of the function stands in all stacks alike: with it in them, an error would be another one wherever
    our code moves."""

    def deeper() -> None:
        raise PaymentRefused("no")

    def pay() -> None:
        deeper()

    error = broken(world, pay).error
    assert error is not None
    assert error.fingerprint == fingerprint("PaymentRefused", [(__name__, "pay"), (__name__, "deeper")])


def test_siblings_go_on_and_what_waits_does_not_run(world: World) -> None:
    ran: list[str] = []

    @world.app.actor()
    def fail() -> None:
        raise ValueError("first")

    @world.app.actor()
    def step(name: str, *_: Any) -> str:
        ran.append(name)
        return name

    def order() -> Any:
        failed = fail.schedule()
        sibling = step.schedule("sibling")
        after_sibling = step.schedule("after sibling", sibling)
        return step.schedule("waits for both", after_sibling, failed)

    process = broken(world, order)
    world.pump()
    assert ran == ["sibling", "after sibling"]
    states = {decision.state for decision in world.decisions(process.id).values()}
    assert states == {DecisionState.FINISHED, DecisionState.WAITING}
    # Nobody will look at it again.
    world.scan()

    def quiet() -> bool:
        world.scan()
        names = ("processes", "decisions", "graphs")
        live = {"recoveryTime": {"$exists": True}}
        return not any(world.store.database[name].count_documents(live) for name in names)

    wait_until(quiet, 5, "all at rest")
    assert world.process(process.id) == process


def test_of_two_errors_the_first_breaks_it(world: World) -> None:
    @world.app.actor()
    def fail(number: int) -> None:
        raise ValueError(str(number))

    def order() -> Any:
        return [fail.schedule(number) for number in range(3)]

    process = broken(world, order)
    assert process.error is not None
    ended = [d.outcome.error.message for d in of(world, "fail") if d.outcome and d.outcome.error]
    assert sorted(ended) == ["0", "1", "2"]
    assert process.error.message in ended


def test_children_of_a_failed_task_never_come_to_be(world: World) -> None:
    step = world.app.actor("step")(lambda: None)

    def order() -> Any:
        step.schedule()
        raise ValueError("after scheduling")

    broken(world, order)
    assert of(world, "step") == []
    assert world.counts()["tasks"] == 1


def test_a_promise_of_another_actors_child_is_refused(world: World) -> None:
    """It would be waited for by who can't know when it comes; and a value that isn't one is refused as well."""
    kept: list[Any] = []
    step = world.app.actor("step")(lambda *_: None)

    @world.app.actor()
    def first() -> None:
        kept.append(step.schedule())

    @world.app.actor()
    def second(_: Any, how: str) -> Any:
        return step.schedule(kept[0]) if how == "passed" else {"value": kept[0]}

    def order(how: str) -> Any:
        return second.schedule(first.schedule(), how)

    world.app.process()(order)
    for how, told in [
        ("passed", "arguments of step: holds a promise of task"),
        ("returned", "value returned by second"),
    ]:
        process_id = world.start("order", how)
        world.pump()
        error = world.process(process_id).error
        assert error is not None
        assert error.kind == "InputError"
        assert error.message.startswith(told)
        assert "which this run of second did not schedule" in error.message


@pytest.mark.parametrize(
    ("returned", "kind", "told"),
    [
        (lambda: {1, 2}, "NotEncodable", "value returned by order: a builtins.set is not JSON"),
        (
            lambda: "x" * 17_000_000,
            "TooLarge",
            "value returned by order: at least 17,000,002 bytes as JSON, over",
        ),
        (lambda: float("nan"), "NotEncodable", "value returned by order: nan is not a JSON number"),
        (lambda: [10**5000], "NotEncodable", "value returned by order[0]: a whole number of over 4,300 digits"),
    ],
)
def test_a_value_that_cant_be_kept(world: World, returned: Any, kind: str, told: str) -> None:
    def order() -> Any:
        return returned()

    error = broken(world, order).error
    assert error is not None
    assert error.kind == kind
    assert error.message.startswith(told)


def test_arguments_that_cant_be_kept(world: World) -> None:
    step = world.app.actor("step")(lambda *_: None)

    def order() -> Any:
        return step.schedule({"a": [object()]})

    error = broken(world, order).error
    assert error is not None
    assert error.message.startswith("arguments of step[0][0]['a'][0]: a builtins.object is not JSON")


def test_more_children_than_one_record_holds(world: World) -> None:
    step = world.app.actor("step")(lambda *_: None)

    def order() -> Any:
        return [step.schedule("x" * 6_000_000) for _ in range(3)]

    error = broken(world, order).error
    assert error is not None
    assert error.kind == "TooLarge"
    assert "come to over 16 MB, which is all that one record holds" in error.message
    assert world.counts()["tasks"] == 1


def test_a_result_too_large_beside_its_arguments_breaks_the_process(world: World) -> None:
    """One record holds both. Without this it would be tried for ever."""

    def order(text: str) -> Any:
        return text

    error = broken(world, order, "x" * 9_000_000).error
    assert error is not None
    assert (error.kind, error.message.partition(":")[0]) == ("TooLarge", "the result of the process is over 16 MB")


def test_a_result_too_deep_breaks_the_process(world: World) -> None:
    """Each value is of few levels; that they promise each other shows when they are put together."""
    layers, levels = 300, 90
    tasks = ["start", *(f"t{n}" for n in range(1, layers))]
    for task, promised in zip(tasks, [*tasks[1:], None], strict=True):
        text = f'{{"$promise":"{promised}"}}' if promised else "0"
        outcome = Outcome(pass_key="k", value="[" * levels + text + "]" * levels, waits=(promised,) if promised else ())
        put(world.store, Decision(id=f"p/{task}", actor="a", state=DecisionState.FINISHED, outcome=outcome))
    world.store.processes.insert(Process(id="p", type="order", args=""), first_look=60)
    assert finish_process(world.app.resources, "p", 0)
    error = world.process("p").error
    assert error is not None
    assert error.kind == "NotEncodable"
    assert "nested too deep" in error.message


def test_long_and_strange_messages(world: World) -> None:
    @world.app.actor()
    def fail(how: int) -> None:
        raise (ValueError("é" * 600), ValueError("\ud800"), ValueError(), Unspeakable())[how]

    world.app.process("order")(fail.schedule)
    told: list[Any] = []
    for how in range(4):
        process_id = world.start("order", how)
        world.pump()
        error = world.process(process_id).error
        told.append(error and (error.kind, error.message))
    assert told == [
        ("ValueError", "é" * 500),
        ("ValueError", "?"),
        ("ValueError", ""),
        ("Unspeakable", "(no text: its __str__ raised RuntimeError)"),
    ]


def test_an_actor_that_raises_claim_lost_itself_has_failed(world: World) -> None:
    def order() -> Any:
        raise ClaimLost("the lease of the printer is gone")

    process_id = world.start(world.app.process()(order))
    world.pump()
    error = world.process(process_id).error
    assert error is not None and (error.kind, error.message) == ("ClaimLost", "the lease of the printer is gone")


class Own(BaseException):
    """An application's, of no kind that anybody knows."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), ""),
        (asyncio.CancelledError("by a timeout"), "by a timeout"),
        (GeneratorExit(), ""),
        (SystemExit(3), "called sys.exit(3)"),
        (SystemExit("no disk"), "called sys.exit('no disk')"),
        (Own("of our own"), "of our own"),
        (BaseExceptionGroup("two of them", [KeyboardInterrupt(), ValueError()]), "two of them (2 sub-exceptions)"),
        (Unprintable(), "(no text: its __str__ raised SystemExit)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_an_actor_raises_is_its_tasks_error(
    world: World, error: BaseException, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)  # as a pool's processes have it

    def order() -> None:
        raise error

    process = world.bring_to_end(world.start(world.app.process()(order)))
    assert process.error is not None
    assert (process.error.kind, process.error.message) == (type(error).__name__, message)
    assert "in order" in (process.error.stack or "")


@pytest.fixture
def terminal() -> Iterator[None]:
    """A process that a Ctrl-C can reach. A shell that runs the tests in the background has SIGINT ignored, and Python
    installs no handler then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("terminal")
def test_an_actors_process_that_is_to_end_ends(world: World) -> None:
    """Its attempt is lost with it: the deadline brings another. So it is with a Ctrl-C in the terminal."""
    ends: list[type[BaseException]] = [Died, KeyboardInterrupt]

    def order() -> str:
        if ends:
            raise ends.pop()
        return "third"

    process_id = world.start(world.app.process(worker_timeout=0.1)(order))
    for end in reversed(ends.copy()):
        with pytest.raises(end):
            wait_until(lambda: (world.scan(), world.pump())[1], 10, "another attempt")
    assert world.bring_to_end(process_id).result == '"third"'
    assert world.decisions(process_id)["start"].timeouts == 2


def test_an_application_without_the_actor(world: World, app: Recovery) -> None:
    """Scheduled by name once, taken from the code since: the message finds nobody, and nothing is lost."""
    gone = app.actor("gone")(lambda: "found")
    process_id = world.start(app.process("order")(gone.schedule))
    world.pump(serve={"order": app.actors["order"]})
    assert world.redis.llen("gone") == 1
    world.pump()
    assert app.result(process_id, timeout=0) == "found"


def test_a_kind_without_end_is_cut(world: World) -> None:
    kind = "\x1b[2J" + "Refused" * 1000

    def refuse() -> None:
        raise type(kind, (Exception,), {})("x" * 10_000)

    error = broken(world, refuse).error
    assert error is not None
    assert (error.kind, error.message) == (kind[:100], "x" * 500)
