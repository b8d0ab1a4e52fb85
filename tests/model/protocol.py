"""An explicit-state model of the order of writes and the rules that restore it.

One process: the start task S creates a child C and returns C's value. Two workers, a lossy queue, a crash or a
time-out anywhere. Every interleaving is explored. Checked in each state: at most one accepted decision per task,
and a finished process has all its tasks decided. Checked of the whole: from every state that can be reached, an end
can be reached without a further fault, so nothing is ever stuck.

Change the order of writes here before you change it in `recovery.engine`. Bounds of the model, not of the design:
two new passes per task, one lost message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

MAX_PASS, MAX_LOST = 3, 1


class Decision(NamedTuple):
    """State '-' (absent), 'waiting', 'queued', 'running' or 'finished', and the number of its pass."""

    state: str
    pas: int


class World(NamedTuple):
    """All records, the queue, and where each worker is: (step, task, pass)."""

    ended: bool
    graph: bool
    open: frozenset[str]
    done: frozenset[str]
    S: Decision
    C: Decision
    queue: frozenset[tuple[str, int]]
    workers: tuple[tuple[str, str, int], ...]
    accepted: tuple[int, int]
    lost: int


Step = tuple[str, World]
IDLE = ("idle", "", 0)
ABSENT, WAITING = Decision("-", 0), Decision("waiting", 0)
START = World(
    False, False, frozenset(), frozenset(), ABSENT, ABSENT, frozenset(), (IDLE, IDLE), (0, 0), 0
)  # fmt: skip


def steps(world: World, faults: bool = True) -> Iterator[Step]:
    """Everything that can happen next."""
    for number in range(len(world.workers)):
        yield from _worker(world, number, faults)
    if not world.ended:
        yield from _rules(world, faults)
    if faults and world.lost < MAX_LOST:
        for message in world.queue:
            yield f"lose {message}", world._replace(queue=world.queue - {message}, lost=world.lost + 1)


def explore() -> tuple[int, int]:
    """(states, states in which the process has ended). Raises AssertionError with the way to a bad state."""
    seen: dict[World, tuple[World, str] | None] = {START: None}
    waiting = deque([START])
    while waiting:
        world = waiting.popleft()
        assert max(world.accepted) <= 1, f"two accepted decisions:\n{_way(seen, world)}"
        if world.ended:
            decided = world.S.state == world.C.state == "finished"
            assert decided, f"ended with an undecided task:\n{_way(seen, world)}"
        for label, following in steps(world):
            if following not in seen:
                seen[following] = (world, label)
                waiting.append(following)
    _never_stuck(seen)
    return len(seen), sum(world.ended for world in seen)


def _never_stuck(seen: dict[World, Any]) -> None:
    before: dict[World, list[World]] = {}
    for world in seen:
        for _, following in steps(world, faults=False):
            before.setdefault(following, []).append(world)
    good = {world for world in seen if world.ended}
    waiting = deque(good)
    while waiting:
        for world in before.get(waiting.popleft(), ()):
            if world not in good:
                good.add(world)
                waiting.append(world)
    stuck = next((world for world in seen if world not in good), None)
    assert stuck is None, f"stuck:\n{_way(seen, stuck)}"


def _worker(world: World, number: int, faults: bool) -> Iterator[Step]:
    step, task, pas = world.workers[number]

    def at(step: str, task: str = task, pas: int = pas, world: World = world) -> World:
        places = list(world.workers)
        places[number] = (step, task, pas) if step != "idle" else IDLE
        return world._replace(workers=tuple(places))

    if step == "idle":
        for message in world.queue:
            yield f"pop {message}", at("popped", *message, world._replace(queue=world.queue - {message}))
        return
    if faults:
        yield f"crash at {step}", at("idle")
    if step == "popped":
        if _of(world, task) == Decision("queued", pas):
            yield f"claim {task}", at("run", world=_set(world, task, Decision("running", pas)))
        else:
            yield f"stale message {task}", at("idle")
    elif step == "run":
        decision = _of(world, task)
        if decision.state in ("queued", "running"):  # accept_first: any attempt while it is not finished
            accepted = (world.accepted[0] + (task == "S"), world.accepted[1] + (task == "C"))
            finished = _set(world, task, Decision("finished", decision.pas))._replace(accepted=accepted)
            yield f"finish {task}", at("children", world=finished)
        else:
            yield f"stale result {task}", at("idle")
    elif step == "children":
        yield f"insert children of {task}", at("graph", world=_insert_children(world, task))
    elif step == "graph":
        if task == "S" and (queued := _enqueue(world, "C")) is not None:
            # A task that waits for this one alone is claimed before the graph learns of it. That may then never
            # come from here, as if the worker had been killed: DECISION_NOT_APPLIED has to do.
            new = _of(queued, "C").pas
            yield "claim C before S is applied", at("run", "C", new, _set(queued, "C", Decision("running", new)))
        yield f"apply {task}", at("enqueue", world=_apply(world, task))
    elif step == "enqueue":
        ready = [t for t in sorted(world.open) if _of(world, t).state == "waiting"]
        if not ready:
            yield "nothing to enqueue", at("end")
        for child in ready:
            if (queued := _enqueue(world, child)) is not None:
                new = _of(queued, child).pas
                yield f"enqueue {child}", at("push", child, new, queued)
                # Enqueue and claim in one, without a message: `Decisions.claim_ready`; at once after the finish of
                # what it waited for, `Decisions.finish_and_claim`.
                yield f"claim {child} on the spot", at("run", child, new, _set(queued, child, Decision("running", new)))
    elif step == "push":
        yield f"push {task}", at("enqueue", world=world._replace(queue=world.queue | {(task, pas)}))
    elif step == "end":
        complete = world.graph and not world.open
        yield "finish the process, if it is complete", at("idle", world=world._replace(ended=world.ended or complete))


def _rules(world: World, faults: bool) -> Iterator[Step]:
    """Each rule's repair is one write of the normal path; cut off after it is the same as stopping there."""
    if not world.graph:
        yield "START_NOT_REGISTERED graph", world._replace(graph=True, open=frozenset("S"))
    elif world.S.state == "-":
        # Queued as it is inserted; the message may be pushed, or be lost with whoever was to push it.
        queued = _set(world, "S", Decision("queued", 1))
        yield "START_NOT_REGISTERED decision", queued
        yield "START_NOT_REGISTERED decision, pushed", queued._replace(queue=queued.queue | {("S", 1)})
    for task in "SC":
        yield from _task_rules(world, task, faults)
    if world.graph and "S" in world.done and world.C.state == "-":
        yield "CHILDREN_MISSING", _insert_children(world, "S")
    if world.graph and not world.open:
        yield "FINISH_NOT_RECORDED", world._replace(ended=True)


def _task_rules(world: World, task: str, faults: bool) -> Iterator[Step]:
    state, pas = _of(world, task)
    if state in ("running", "queued") and pas < MAX_PASS:
        rule = "WORK_TIMEOUT" if state == "running" else "MESSAGE_LOST"
        queued = _set(world, task, Decision("queued", pas + 1))
        yield f"{rule} {task}", queued._replace(queue=queued.queue | {(task, pas + 1)})
        if faults and state == "running":
            yield f"{rule} {task}, cut off before the push", queued
    if pas == MAX_PASS:  # the model's passes are used up: the same one again
        again = _set(world, task, Decision("queued", pas))._replace(queue=world.queue | {(task, pas)})
        if state == "queued" and (task, pas) not in world.queue:
            yield f"MESSAGE_LOST {task} again", again
        if state == "running" and not any(t == task and step == "run" for step, t, _ in world.workers):
            yield f"WORK_TIMEOUT {task} again", again
    if state == "finished" and task in world.open:
        with_children = _insert_children(world, task)
        yield f"DECISION_NOT_APPLIED {task}", with_children if with_children != world else _apply(world, task)
    if state == "waiting" and world.graph and task in world.open and (queued_one := _enqueue(world, task)) is not None:
        message = (task, _of(queued_one, task).pas)
        yield f"READY_NOT_QUEUED {task}", queued_one._replace(queue=queued_one.queue | {message})


def _of(world: World, task: str) -> Decision:
    return world.S if task == "S" else world.C


def _set(world: World, task: str, decision: Decision) -> World:
    return world._replace(**{task: decision})


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


def _way(seen: dict[World, Any], world: World) -> str:
    lines = []
    while (came := seen[world]) is not None:
        lines.append(f"{came[1]}  ->  {world}")
        world = came[0]
    return "\n".join(reversed(lines))
