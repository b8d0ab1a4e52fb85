"""An explicit-state model of the order of writes and the rules that restore it.

One process: the start task S creates a child C and returns C's value. Some workers, a lossy queue, a crash or a
time-out anywhere: of an attempt, or of a task as a whole, which ends with an error then; and attempts that fail for
what may pass, and are tried again later. Every interleaving is
explored. Checked in each state: at most one accepted decision per task; a finished process has the values of all its
tasks, and a broken one has an error. Checked of the whole: from every state that can be reached, an end can be reached
without a further fault, so nothing is ever stuck.

Change the order of writes here before you change it in `recovery.engine`, which `test_tied` holds against it. Bounds of
the model, not of the design: three new passes per task, two lost messages, and how many workers there are. How a
process breaks, write by write, is `restart`'s to explore.

States that differ only in what makes no difference are one (`canonical`): which worker is which, and messages and
passes of tasks that have moved on since, which whoever takes them drops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model import exploring
from tests.model.exploring import Reached, Step

MAX_PASS, MAX_LOST = 4, 2


class Decision(NamedTuple):
    """State '-' (absent), 'waiting', 'delayed', 'queued', 'running', 'finished' or 'error', and the number of its
    pass."""

    state: str
    pas: int


class World(NamedTuple):
    """All records, the queue, and where each worker is: (step, task, pass)."""

    ended: str
    graph: bool
    open: frozenset[str]
    done: frozenset[str]
    S: Decision
    C: Decision
    queue: frozenset[tuple[str, int]]
    workers: tuple[tuple[str, str, int], ...]
    accepted: tuple[int, int]
    lost: int


_REQUEUED_BY = {"running": "WORK_TIMEOUT", "queued": "MESSAGE_LOST", "delayed": "DUE"}
"""{state: the rule that queues what has been in it for too long}"""

IDLE = ("idle", "", 0)
ABSENT, WAITING = Decision("-", 0), Decision("waiting", 0)
START = World("", False, frozenset(), frozenset(), ABSENT, ABSENT, frozenset(), (IDLE,), (0, 0), 0)


def steps(world: World) -> Iterator[Step[World]]:
    """Everything that can happen next."""
    for number in range(len(world.workers)):
        yield from _worker(world, number)
    if not world.ended:
        yield from _rules(world)
    if world.lost < MAX_LOST:
        for message in world.queue:
            yield ("lose", message), world._replace(queue=world.queue - {message}, lost=world.lost + 1), True


def canonical(world: World) -> World:
    """The one that stands for all that differ from it in nothing that matters."""
    workers = tuple(sorted([one if one == IDLE else _at_work(world, *one) for one in world.workers]))
    queue = world.queue
    if queue:
        queue = frozenset([message for message in queue if _may_be_claimed(world, *message)])
    return World(*world[:6], queue, workers, *world[8:])


def _at_work(world: World, step: str, task: str, pas: int) -> tuple[str, str, int]:
    if step == "popped":
        return (step, task, pas) if _may_be_claimed(world, task, pas) else IDLE
    return step, task, pas if step in ("run", "push") and _of(world, task).pas == pas else 0


def _may_be_claimed(world: World, task: str, pas: int) -> bool:
    """Now, or ever: an old pass does not come back, but for the model's last one."""
    decision = _of(world, task)
    return decision.pas == pas and (
        decision.state == "queued" or (decision.state in ("running", "delayed") and pas == MAX_PASS)
    )


def explore(
    workers: int, without: str = "-", alike: Callable[[World], World] = canonical
) -> tuple[Reached[World], dict[str, int]]:
    """All states, and how many there are by how the process has ended. Raises AssertionError with the way to a bad one.

    `without` is the beginning of a rule's name: what if there was no such rule? `alike` gives the state that stands
    for a state.
    """
    start = START._replace(workers=(IDLE,) * workers)

    def possible(world: World) -> Iterator[Step[World]]:
        return (step for step in steps(world) if not step[0][0].startswith(without))

    seen = exploring.explore(start, possible, wrong=_wrong, is_over=lambda world: bool(world.ended), alike=alike)
    return seen, {"": 0, "finished": 0, "broken": 0} | Counter(world.ended for world in seen)


def _wrong(world: World) -> str:
    if max(world.accepted) > 1:
        return "two accepted decisions"
    if world.ended == "finished" and not world.S.state == world.C.state == "finished":
        return "finished without all values"
    if world.ended == "broken" and "error" not in (world.S.state, world.C.state):
        return "broken, and nothing failed"
    return ""


def _worker(world: World, number: int) -> Iterator[Step[World]]:
    step, task, pas = world.workers[number]

    def at(step: str, task: str = task, pas: int = pas, world: World = world) -> World:
        places = list(world.workers)
        places[number] = (step, task, pas) if step != "idle" else IDLE
        return world._replace(workers=tuple(places))

    if step == "idle":
        for message in world.queue:
            yield ("pop", message), at("popped", *message, world._replace(queue=world.queue - {message})), False
        return
    # That of one whose message came when its task's time was over looks the same: it is not claimed.
    yield ("crash at", step), at("idle"), True
    if step == "popped":
        if _of(world, task) == ("queued", pas):
            yield ("claim", task), at("run", world=_set(world, task, Decision("running", pas))), False
        else:
            yield ("stale message", task), at("idle"), False
    elif step == "run":
        decision = _of(world, task)
        if decision.state in ("queued", "running", "delayed"):  # accept_first: any attempt while it is not finished
            yield ("finish", task), at("children", world=_decided(world, task, "finished")), False
        else:
            yield ("stale result", task), at("idle"), False
        if decision == ("running", pas):  # an error is taken from the holder of the pass alone
            yield ("fail", task), at("break", world=_decided(world, task, "error")), True
            delayed = at("idle", world=_set(world, task, Decision("delayed", pas)))
            yield ("retry later", task), delayed, True
            yield ("give back, its call refused", task), delayed, True
    elif step == "children":
        yield ("insert children of", task), at("graph", world=_insert_children(world, task)), False
    elif step == "graph":
        if task == "S" and (queued := _enqueue(world, "C")) is not None:
            # A task that waits for this one alone is claimed before the graph learns of it. That may then never
            # come from here, as if the worker had been killed: DECISION_NOT_APPLIED has to do.
            new = _of(queued, "C").pas
            claimed = at("run", "C", new, _set(queued, "C", Decision("running", new)))
            yield ("claim C before S is applied",), claimed, False
        yield ("apply", task), at("enqueue", world=_apply(world, task)), False
    elif step == "enqueue":
        ready = [t for t in sorted(world.open) if _of(world, t).state == "waiting"]
        if not ready:
            yield ("nothing to enqueue",), at("end"), False
        for child in ready:
            if (queued := _enqueue(world, child)) is not None:
                new = _of(queued, child).pas
                yield ("enqueue", child), at("push", child, new, queued), False
                # Enqueue and claim in one, without a message: `Decisions.claim_ready`; at once after the finish of
                # what it waited for, `Decisions.finish_and_claim`.
                claimed = at("run", child, new, _set(queued, child, Decision("running", new)))
                yield ("claim on the spot", child), claimed, False
    elif step == "push":
        yield ("push", task), at("enqueue", world=world._replace(queue=world.queue | {(task, pas)})), False
    elif step == "break":
        yield ("break the process", task), at("idle", world=_interrupt(world, task)), False
    elif step == "end":
        complete = world.graph and not world.open and not world.ended
        ended = world._replace(ended="finished") if complete else world
        yield ("finish the process, if it is complete",), at("idle", world=ended), False


def _rules(world: World) -> Iterator[Step[World]]:
    """Each rule's repair is one write of the normal path; cut off after it is the same as stopping there."""
    if not world.graph:
        yield ("START_NOT_REGISTERED graph",), world._replace(graph=True, open=frozenset("S")), False
    elif world.S.state == "-":
        # Queued as it is inserted; the message may be pushed, or be lost with whoever was to push it.
        queued = _set(world, "S", Decision("queued", 1))
        yield ("START_NOT_REGISTERED decision",), queued, False
        yield ("START_NOT_REGISTERED decision, pushed",), queued._replace(queue=queued.queue | {("S", 1)}), False
    for task in "SC":
        yield from _task_rules(world, task)
    if world.graph and "S" in world.done and world.C.state == "-":
        yield ("CHILDREN_MISSING",), _insert_children(world, "S"), False
    if world.graph and not world.open:
        yield ("FINISH_NOT_RECORDED",), world._replace(ended="finished"), False


def _task_rules(world: World, task: str) -> Iterator[Step[World]]:
    state, pas = _of(world, task)
    if state in ("running", "queued", "delayed"):
        # Of one that runs, at once if that is forced, else when its attempt is overdue as well: at any time, here.
        # Its effect is DECISION_NOT_APPLIED's.
        yield ("TASK_TIMEOUT", task), _decided(world, task, "error"), True
    if state in _REQUEUED_BY and pas < MAX_PASS:
        rule = _REQUEUED_BY[state]
        queued = _set(world, task, Decision("queued", pas + 1))
        yield (rule, task), queued._replace(queue=queued.queue | {(task, pas + 1)}), False
        if state != "queued":
            yield (rule, task, "cut off before the push"), queued, True
    if state == "running" and pas < MAX_PASS:  # a further loss in a row
        yield ("WORK_TIMEOUT later", task), _set(world, task, Decision("delayed", pas + 1)), False
    if pas == MAX_PASS:  # the model's passes are used up: the same one again
        again = _set(world, task, Decision("queued", pas))._replace(queue=world.queue | {(task, pas)})
        if state == "queued" and (task, pas) not in world.queue:
            yield ("MESSAGE_LOST again", task), again, False
        at_work = any(t == task and step == "run" for step, t, _ in world.workers)
        if state in ("running", "delayed") and not at_work:
            yield (f"{_REQUEUED_BY[state]} again", task), again, False
    if state == "finished" and task in world.open:
        with_children = _insert_children(world, task)
        applied = with_children if with_children != world else _apply(world, task)
        yield ("DECISION_NOT_APPLIED", task), applied, False
    if state == "error":
        yield ("DECISION_NOT_APPLIED, an error", task), _interrupt(world, task), False
    if state == "waiting" and world.graph and task in world.open and (queued_one := _enqueue(world, task)) is not None:
        message = (task, _of(queued_one, task).pas)
        yield ("READY_NOT_QUEUED", task), queued_one._replace(queue=queued_one.queue | {message}), False


def _of(world: World, task: str) -> Decision:
    return world.S if task == "S" else world.C


def _set(world: World, task: str, decision: Decision) -> World:
    return world._replace(S=decision) if task == "S" else world._replace(C=decision)


def _decided(world: World, task: str, state: str) -> World:
    """The one write that decides a task; nobody asks for its pass any more."""
    accepted = (world.accepted[0] + (task == "S"), world.accepted[1] + (task == "C"))
    return _set(world, task, Decision(state, 0))._replace(accepted=accepted)


def _enqueue(world: World, task: str) -> World | None:
    state, pas = _of(world, task)
    return _set(world, task, Decision("queued", pas + 1)) if state == "waiting" and pas < MAX_PASS else None


def _insert_children(world: World, task: str) -> World:
    return _set(world, "C", WAITING) if task == "S" and world.C.state == "-" else world


def _apply(world: World, task: str) -> World:
    """The graph's update, guarded by the task being open."""
    if not (world.graph and task in world.open):
        return world
    opened = world.open - {task} | ({"C"} if task == "S" else set())
    return world._replace(open=frozenset(opened), done=world.done | {task})


def _interrupt(world: World, task: str) -> World:
    """What failed breaks the process, once the graph knows of it: its parent is applied."""
    return world._replace(ended="broken") if task in world.open and not world.ended else world
