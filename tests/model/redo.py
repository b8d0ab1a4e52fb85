"""An explicit-state model of doing a task again, with all that depends on it, in a new epoch of its process.

The start task, which is done and stays so, has scheduled three: A; B, which waits for A's value; and X, which has
nothing to do with either. A and X schedule a child each as they end: K, which is another task in another epoch, and Y.
Somebody has A done again, at any moment, whether the process runs or has finished. So B is done again as well, the old
K is dropped, and what X and Y came to, or still come to, is kept. Workers, and whoever carries the new epoch out, may
be cut off after any write, and may have read what they act on long ago. Every interleaving is explored.

Checked in each state: no more than one end of X is accepted, one that was is never lost, and none is refused that comes
from who holds it; a finished process has all values; in the new epoch A and B were claimed in it, B after A had ended
in it, and the old K is not part of it, and does not run in it. Checked of the whole: from every state an end can be
reached without a further fault.

Change the order of writes here before you change it in the engine's `redo`. Bounds of the model, not of the design: one
new epoch, one pass of each task in an epoch, and how many workers and hands that carry the epoch out there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tests.model import exploring
from tests.model.exploring import Step

TASKS = ("A", "B", "X", "Y", "K0", "K1")
DONE_AGAIN, KEPT = ("A", "B"), ("X", "Y")


class Decision(NamedTuple):
    """State '-' (absent), 'waiting', 'queued', 'working' or 'finished'; its epoch and pass; `made`: the epoch in which
    the attempt that was accepted was claimed, and of B the one of A's value that it was claimed with."""

    state: str = "-"
    epoch: int = 0
    pas: int = 0
    made: tuple[int, ...] = ()


class Worker(NamedTuple):
    """At which step, with which task, as it was read: its epoch and pass; `made` by its attempt; `ready`: what it is
    about to enqueue."""

    step: str = "idle"
    task: str = ""
    epoch: int = 0
    pas: int = 0
    made: tuple[int, ...] = ()
    ready: tuple[str, ...] = ()


class Hand(NamedTuple):
    """Who carries the new epoch out: at which step, and the graph that was worked out from what was read."""

    step: str = "idle"
    open: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()


class World(NamedTuple):
    state: str
    epoch: int
    pending: bool
    graph_epoch: int
    open: frozenset[str]
    done: frozenset[str]
    decisions: tuple[Decision, ...]
    workers: tuple[Worker, ...]
    hands: tuple[Hand, ...]
    accepted: int
    """How many ends of X were."""
    refused: bool
    """Whether an end of what is kept was refused, of who holds it."""


"""What happens, the world after it, and whether that is a fault: not to be counted on."""

QUEUED, WAITING = Decision("queued", 0, 1), Decision("waiting")
START = World(
    "running", 0, False, 0, frozenset("ABX"), frozenset(),
    (QUEUED, WAITING, QUEUED, Decision(), Decision(), Decision()), (Worker(),), (Hand(),), 0, False,
)  # fmt: skip
WITHOUT = frozenset[str]()
"""Parts of the design that a test takes out, to see that the model needs them."""


def steps(world: World, without: frozenset[str] = WITHOUT) -> Iterator[Step[World]]:
    """Everything that can happen next."""
    for number, worker in enumerate(world.workers):
        yield from _worker(world, number, worker, without)
    for number, hand in enumerate(world.hands):
        yield from _hand(world, number, hand, without)
    if world.epoch == 0:
        # The commit point: from here on the process can't end in the old epoch.
        again = world._replace(state="running", epoch=1, pending=True)
        yield ("do A again",), again, True
    if not world.pending and world.state == "running":
        yield from _rules(world, without)


def _worker(world: World, number: int, worker: Worker, without: frozenset[str]) -> Iterator[Step[World]]:
    step, task, epoch, pas, made, ready = worker

    def at(after: Worker, changed: World = world) -> World:
        return changed._replace(workers=_with(world.workers, number, after))

    if step == "idle":
        for task, decision in zip(TASKS, world.decisions, strict=True):
            if decision.state == "queued":
                value = _of(world, "A")
                if task == "B" and value.state != "finished":
                    # Its dependency has no value: it waits again.
                    yield (
                        ("not ready", task),
                        at(Worker(), _set(world, task, Decision("waiting", decision.epoch))),
                        False,
                    )
                    continue
                by = (decision.epoch, *(value.made[:1] if task == "B" else ()))
                claimed = _set(world, task, decision._replace(state="working"))
                yield ("claim", task), at(Worker("run", task, decision.epoch, decision.pas, by), claimed), False
        return
    yield ("cut off", worker), at(Worker()), True
    if step == "run":
        decision = _of(world, task)
        same = decision.epoch == epoch
        if decision.state not in ("queued", "working"):
            yield ("stale", worker), at(Worker()), False
        elif same or ("pass" not in without and decision.pas == pas and decision.state == "working"):
            # Who has the pass holds it, whatever the epoch: what is kept was moved meanwhile.
            ended = _set(world, task, Decision("finished", decision.epoch, 0, made))
            ended = ended._replace(accepted=world.accepted + (task == "X"))
            yield ("finish", worker), at(Worker("children", task, epoch, 0, made), ended), False
        else:
            refused = task in KEPT and decision.pas == pas and decision.state == "working"
            yield ("stale", worker), at(Worker(), world._replace(refused=refused)), False
    elif step == "children":
        b = _of(world, "B")
        if task == "A" and b.state == "waiting" and (b.epoch == epoch or "epoch of a claim" in without):
            # On the spot, with the value in hand; the graph learns of A's end by DECISION_NOT_APPLIED.
            claimed = _set(world, "B", b._replace(state="working", pas=b.epoch + 1))
            by = (b.epoch, *made[:1])
            yield ("claim B", worker), at(Worker("run", "B", b.epoch, b.epoch + 1, by), claimed), False
        yield ("insert children", worker), at(worker._replace(step="apply"), _insert(world, task, epoch)), False
    elif step == "apply":
        changed = _apply(world, task, epoch)
        after = Worker("look", task, epoch, ready=() if changed is None else _ready_by(changed, task, epoch))
        yield ("apply", worker), at(after, changed or world), False
        # Or with other processes' graphs, all of which are read when all are written.
        yield ("apply with others", worker), at(Worker("view", task, epoch), changed or world), False
    elif step == "view":
        if world.graph_epoch != epoch or task not in world.done:
            yield ("apply alone", worker), at(Worker("look", task, epoch)), False
        else:
            yield ("view", worker), at(Worker("look", task, epoch, ready=_ready_by(world, task, epoch))), False
    elif step == "look":
        child = _child(task, epoch)
        if child is not None and world.epoch > epoch and "look" not in without:
            there = _of(world, child)
            gone = there.state == "waiting" and (there.epoch < world.epoch or task in DONE_AGAIN)
            yield ("take back", worker), at(Worker(), _set(world, child, Decision()) if gone else world), False
        else:
            yield ("look", worker), at(Worker("enqueue", ready=ready) if ready else Worker()), False
    elif step == "enqueue":
        changed = world
        for one in ready:
            changed = _enqueue(changed, one)
        # That all is done FINISH_NOT_RECORDED tells.
        yield ("enqueue", worker), at(Worker(), changed), False


def _hand(world: World, number: int, hand: Hand, without: frozenset[str]) -> Iterator[Step[World]]:
    def at(step: str, changed: World = world, after: Hand = hand) -> tuple[tuple[object, ...], World, bool]:
        return (step, number), changed._replace(hands=_with(world.hands, number, after._replace(step=step))), False

    if hand.step == "idle":
        if world.pending:
            yield at("freeze")
        return
    yield ("cut off", hand), world._replace(hands=_with(world.hands, number, Hand())), True
    if hand.step == "freeze":  # what is done again: in the new epoch, and waiting; no attempt of it counts any more
        changed = world
        for task in DONE_AGAIN:
            if _of(world, task).epoch == 0 and "freeze" not in without:
                changed = _set(changed, task, Decision("waiting", 1))
        yield at("drop", changed)
    elif hand.step == "drop":  # what the old attempts of those had scheduled
        yield at("move", _set(world, "K0", Decision()))
    elif hand.step == "move":  # what is kept, as it is: whoever is at work on it goes on
        changed = world
        for task in KEPT:
            if _of(world, task).epoch == 0 and _of(world, task).state != "-":
                changed = _set(changed, task, _of(world, task)._replace(epoch=1))
        yield at("read", changed)
    elif hand.step == "read":
        done = frozenset(task for task in TASKS if _of(world, task).state == "finished") - {"K0"}
        scheduled = {child for task, child in (("A", "K1"), ("X", "Y")) if task in done}
        yield at("graph", world, Hand("", frozenset({"A", "B", "X"} | scheduled) - done, done))
    elif hand.step == "graph":
        changed = world
        if world.graph_epoch == 0:
            changed = world._replace(graph_epoch=1, open=hand.open, done=hand.done)
        yield at("clear", changed, Hand())
    elif hand.step == "clear":
        yield at("idle", world._replace(pending=False), Hand())


def _rules(world: World, without: frozenset[str]) -> Iterator[Step[World]]:
    """Each repair; cut off after it is the same as stopping there."""
    epoch = world.graph_epoch
    for task, decision in zip(TASKS, world.decisions, strict=True):
        if decision.epoch != world.epoch and decision.state != "-" and "EPOCH_WRONG" not in without:
            # Somebody who was late has inserted it; what was dropped nobody's graph has.
            yield ("EPOCH_WRONG", task), _set(world, task, decision._replace(epoch=world.epoch)), False
        if decision.epoch != world.epoch:
            continue
        # Under a new pass, but for this model: of attempts side by side `protocol` tells.
        at_work = any(one.task == task and one.step == "run" for one in world.workers)
        if decision.state == "working" and not at_work:
            yield ("WORK_TIMEOUT", task), _set(world, task, decision._replace(state="queued")), False
        if decision.state == "finished" and task in world.open:
            inserted = _insert(world, task, decision.epoch)
            yield ("DECISION_NOT_APPLIED", task), _apply(inserted, task, decision.epoch) or inserted, False
        if decision.state == "finished" and task in world.done and _insert(world, task, epoch) != world:
            yield ("CHILDREN_MISSING", task), _insert(world, task, epoch), False
    for task in _ready(world):
        yield ("READY_NOT_QUEUED", task), _enqueue(world, task), False
    if not world.open:
        yield ("FINISH_NOT_RECORDED",), _end(world, epoch), False


def _of(world: World, task: str) -> Decision:
    return world.decisions[TASKS.index(task)]


def _set(world: World, task: str, decision: Decision) -> World:
    return world._replace(decisions=_with(world.decisions, TASKS.index(task), decision))


def _with(values: Any, place: int, value: Any) -> Any:
    return (*values[:place], value, *values[place + 1 :])


def _insert(world: World, task: str, epoch: int) -> World:
    """What a task schedules by an end in this epoch, if it is not there."""
    child = _child(task, epoch)
    if child is None or _of(world, child).state != "-":
        return world
    return _set(world, child, Decision("waiting", epoch))


def _child(task: str, epoch: int) -> str | None:
    return {"A": f"K{epoch}", "X": "Y"}.get(task)


def _apply(world: World, task: str, epoch: int) -> World | None:
    """The graph's update, guarded by its epoch and by the task being open."""
    if world.graph_epoch != epoch or task not in world.open:
        return None
    child = _child(task, epoch)
    opened = (world.open - {task}) | ({child} if child is not None else set())
    return world._replace(open=frozenset(opened), done=world.done | {task})


def _ready(world: World) -> tuple[str, ...]:
    """What is open, waits for nothing and was not enqueued."""
    found = [task for task in sorted(world.open) if _of(world, task).state == "waiting"]
    return tuple(task for task in found if task != "B" or "A" not in world.open)


def _ready_by(world: World, task: str, epoch: int) -> tuple[str, ...]:
    """What this task schedules, and what waits for it, as far as they have no open links: of what is in no graph none
    are known."""
    child = _child(task, epoch)
    dependents = ("B",) if task == "A" and "A" not in world.open else ()
    return (*((child,) if child is not None else ()), *dependents)


def _enqueue(world: World, task: str) -> World:
    decision = _of(world, task)
    if decision.state != "waiting":
        return world
    # No pass comes twice.
    return _set(world, task, decision._replace(state="queued", pas=decision.epoch + 1))


def _end(world: World, epoch: int) -> World:
    over = not world.open and (world.state, world.epoch, world.graph_epoch) == ("running", epoch, epoch)
    return world._replace(state="finished") if over else world


def _wrong(world: World) -> str:
    """What is wrong with a state; nothing, as a rule."""
    if world.refused:
        return "an end of what is kept was refused"
    if world.accepted > 1:
        return "two ends of X were accepted"
    if world.accepted and _of(world, "X").state != "finished":
        return "the accepted end of X is lost"
    if world.epoch == 1 and not world.pending:
        a, b = _of(world, "A"), _of(world, "B")
        if a.state == "finished" and a.made != (1,):
            return "an end of A from before is taken"
        if b.state == "finished" and b.made != (1, 1):
            return "an end of B from before is taken, or one by A's old value"
        if "K0" in world.open | world.done:
            return "what A scheduled before is part of the new epoch"
        if _of(world, "K0").epoch == 1 and _of(world, "K0").state not in ("-", "waiting"):
            return "what A scheduled before runs in the new epoch"
    if world.state == "finished":
        child = f"K{world.epoch}"
        if any(_of(world, task).state != "finished" for task in ("A", "B", "X", "Y", child)):
            return "finished without all values"
    return ""


def _alike(world: World) -> World:
    return world._replace(workers=tuple(sorted(world.workers)), hands=tuple(sorted(world.hands, key=repr)))


def explore(workers: int, hands: int, without: frozenset[str] = WITHOUT) -> tuple[int, int]:
    """(states, states with a process that has finished in the new epoch). Raises AssertionError with the way to a bad
    one."""
    start = START._replace(workers=(Worker(),) * workers, hands=(Hand(),) * hands)
    seen = exploring.explore(start, partial(steps, without=without), wrong=_wrong, is_over=_is_over, alike=_alike)
    return len(seen), sum(world.epoch for world in seen if _is_over(world))


def _is_over(world: World) -> bool:
    return world.state == "finished" and not world.pending
