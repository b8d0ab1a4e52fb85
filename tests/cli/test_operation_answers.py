"""What `recovery operation` answers: one line for a change, progress by processes, and why there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from recovery import InputError, operations
from recovery.cli.main import app
from recovery.records import OperationState
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from tests.operations.ordering import Ordering

Run = Callable[..., str]


@pytest.fixture
def world(emptied: Settings) -> Ordering:
    return Ordering(emptied)


@pytest.fixture
def run(world: Ordering) -> Run:
    """Run a command of `recovery operation` in this process, and return what it prints."""
    environment = world.settings.environment() | {"COLUMNS": "300"}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["operation", *arguments], env=environment)
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


def squeezed(text: str) -> str:
    """A text with single spaces."""
    return " ".join(text.split())


def test_a_change_is_answered_in_one_line(world: Ordering, run: Run) -> None:
    world.orders(3)
    number = str(world.bring_on(world.ask("abort", "state:running")).id)
    assert run("rate", number, "50") == (
        f"operation {number} goes through 50 processes a second once it is applied; it is planned\n"
    )
    assert run("apply", number) == (
        f"operation {number} is running: 0%, 0 of 3 processes: nothing done yet; "
        f"`recovery operation watch {number}` follows it\n"
    )
    assert run("rate", number, "unlimited") == (
        f"operation {number} goes through as many processes as it can; it is running\n"
    )
    assert run("pause", number) == (
        f"operation {number} is paused: 0%, 0 of 3 processes: nothing done yet; "
        f"`recovery operation resume {number}` lets it go on\n"
    )
    assert run("resume", number).startswith(f"operation {number} is running: 0%, 0 of 3 processes")
    assert run("cancel", number, "--reason", "no").count("\n") == 1
    other = world.bring_on(world.ask("abort", "state:running"))
    run("apply", str(other.id))
    world.bring_on(other)
    assert "came to 3 done" in squeezed(run("show", str(other.id))), "`show` has all of it"


@pytest.mark.parametrize("command", ["show", "watch", "report"])
def test_an_operation_is_shown_without_redis(world: Ordering, command: str) -> None:
    done = world.bring_on(world.ask("check"))
    away = world.settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"})
    shown = CliRunner().invoke(app, ["operation", command, str(done.id)], env=away.environment())
    assert (shown.exception, shown.exit_code) == (None, 0)


def test_progress_is_told_in_processes(world: Ordering, run: Run) -> None:
    world.orders(4)
    number = str(world.ask("check").id)
    world.store.catch_up(10)
    shown = run("show", number)
    assert "0%, 0 of about 4 processes looked at" in shown and "range" not in shown
    selected = str(world.ask("abort", "state:running").id)
    assert "0%, 0 processes looked at" in run("show", selected), "nobody has counted a selection"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("check", "no rule has found anything wrong with them"),
        ("repair", "no rule has found anything wrong with them"),
        ("restart", "none of them is broken"),
        ("abort", "each has finished or is aborted already"),
        ("collect", "none can be removed yet: each runs, is broken, has ended within the last hour"),
    ],
)
def test_an_operation_with_nothing_to_do_says_why(world: Ordering, run: Run, kind: str, why: str) -> None:
    for process_id in world.orders(2):
        world.end_of(process_id)
    operation = world.bring_on(world.ask(kind, "type:order"))
    assert f"nothing is to be done: 2 processes match, and {why}" in run("show", str(operation.id))
    if kind not in ("check", "restart"):
        with pytest.raises(InputError, match=f"operation {operation.id} has nothing to do: 2 processes match, and"):
            operations.apply(world.app.resources, operation.id)


@pytest.mark.parametrize(("count", "text"), [(0, "there is no process"), (1, "1 process was looked at, and no rule")])
def test_an_operation_on_all_processes_says_why_too(world: Ordering, run: Run, count: int, text: str) -> None:
    for process_id in world.orders(count):
        world.end_of(process_id)
    operation = world.bring_on(world.ask("repair"))
    assert f"nothing is to be done: {text}" in run("show", str(operation.id))


def test_of_one_that_was_applied_unseen_it_is_said_too(world: Ordering, run: Run) -> None:
    world.end_of(world.orders(1)[0])
    done = world.bring_on(world.ask("abort", "type:order", apply=True))
    assert done.state is OperationState.FINISHED
    shown = run("show", str(done.id))
    assert "came to nothing done" in squeezed(shown)
    assert "nothing is to be done: 1 process matches, and each has finished or is aborted already" in shown


def test_a_collection_of_what_is_not_old_yet_is_rehearsed(world: Ordering, run: Run) -> None:
    """On the day on which a cluster begins nothing is old enough."""
    world.end_of(world.orders(1)[0])
    world.store.catch_up(10)
    told = run("start", "collect", "type:order ended:before(90d)", "--reason", "a rehearsal")
    assert "removes       processes of the type order and that ended before 20" in told
    operation = world.bring_on(world.store.operations.newest(1)[0])
    assert operation.state is OperationState.PLANNED
    assert "nothing is to be done: no process matches the selection" in run("show", str(operation.id))
    with pytest.raises(InputError, match="no process of type 'ordr' was seen; did you mean 'order'"):
        run("start", "collect", "type:ordr ended:before(90d)", "--reason", "a rehearsal")
    run("start", "collect", "ended:before(90d) not type:ordr", "--reason", "what is left out may be unknown")
    with pytest.raises(InputError, match="no process matches 'state:broken'; try it with `recovery find`"):
        run("start", "restart", "state:broken", "--reason", "a rehearsal")


def test_a_collection_is_rehearsed_before_the_first_worker(world: Ordering, run: Run) -> None:
    world.store.database["processTypes"].delete_many({})
    world.store.catch_up(10)
    assert run("start", "collect", "type:order ended:before(90d)", "--reason", "a rehearsal").startswith("operation 1")
