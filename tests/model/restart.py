"""An explicit-state model of failures and restarts: what breaks a process, and what sets it running again.

One process of two tasks, A and B, which may fail. Appliers, which are workers or scanners, and an operator who
restarts; each may be cut off after any write, and may have read what it acts on long ago. Every interleaving is
explored. Checked in each state: a finished process has the values of both. Checked of the whole: wherever all are left
alone, no further fault and no operator, they come to an end that tells the truth: the process is finished, or it is
broken, and what is failed in its graph is just what failed and is listed.

Change the order of writes here before you change it in the engine's `interrupt`, `reopen` and `restart`. Bounds of the
model, not of the design: how many appliers there are, and how often each task is restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

TASKS = "AB"


class Decision(NamedTuple):
    """State 'queued', 'value' or 'error', in which life, and whether it has a deadline."""

    state: str
    restarts: int
    live: bool


class Actor(NamedTuple):
    """Somebody at work: at which step, for which task and life, with what end, and how often the process had been
    reopened when it was read. `then`: who goes on after this, or nobody."""

    step: str
    task: str = ""
    restarts: int = 0
    end: str = ""
    reopened: int = -1
    then: tuple[Any, ...] = ()


class World(NamedTuple):
    """All records, and who is at work. Of the graph what is open and failed, and {task: life} that it knows of."""

    state: str
    reopened: int
    open: frozenset[str]
    failed: frozenset[str]
    known: tuple[int, int]
    listed: tuple[int, int]
    decisions: tuple[Decision, Decision]
    appliers: tuple[Actor, ...]
    operator: Actor


Step = tuple[tuple[Any, ...], World]
IDLE = Actor("idle")
NOT_LISTED = -1
START = World(
    "running", 0, frozenset(TASKS), frozenset(), (0, 0), (NOT_LISTED, NOT_LISTED),
    (Decision("queued", 0, True), Decision("queued", 0, True)), (IDLE,), IDLE,
)  # fmt: skip


def going_on(world: World) -> Iterator[Step]:
    """Everything that can happen next while nobody disturbs: no task fails, nobody is cut off, no operator begins."""
    for task, decision in zip(TASKS, world.decisions, strict=True):
        if decision.state == "queued":
            yield (task, "ends well"), _decide(world, task, Decision("value", decision.restarts, True))
            continue
        # DECISION_NOT_APPLIED: not known to be applied, or failed while the process runs.
        forgotten = task in world.open and world.state == "running"
        if IDLE in world.appliers and (decision.live or forgotten):
            begun = Actor("read", task, decision.restarts, decision.state)
            # Any free one will do: they are alike.
            yield ("begin to apply", task), _work(world, world.appliers.index(IDLE), begun)
    for number, actor in enumerate((*world.appliers, world.operator)):
        if actor != IDLE:
            yield from _act(world, number, actor)


def disturbances(world: World, most_restarts: Sequence[int], cuts: bool) -> Iterator[Step]:
    """Everything else that can happen next."""
    for task, decision, most in zip(TASKS, world.decisions, most_restarts, strict=True):
        if decision.state == "queued":
            yield (task, "fails"), _decide(world, task, Decision("error", decision.restarts, True))
        may = decision.state == "error" and decision.restarts < most
        if may and world.operator == IDLE and world.state == "broken":
            # The operator has read that the process is broken, and that the task failed in this life.
            begun = Actor("queue", task, decision.restarts, "queue", world.reopened)
            yield ("begin to restart", task), world._replace(operator=begun)
    for number, actor in enumerate((*world.appliers, world.operator) if cuts else ()):
        if actor != IDLE:
            yield ("cut off", number, actor), _work(world, number, IDLE)


def _act(world: World, number: int, actor: Actor) -> Iterator[Step]:
    step, task, restarts = actor.step, actor.task, actor.restarts

    def at(following: str, changed: World = world, **changes: Any) -> Step:
        return (number, actor), _work(changed, number, actor._replace(step=following, **changes))

    done = (number, actor), _work(world, number, _following(actor))
    place = TASKS.index(task)
    if step == "queue":  # the commit point of a restart
        if world.decisions[place][:2] == ("error", restarts):
            yield at("graph", _decide(world, task, Decision("queued", restarts + 1, True)), restarts=restarts + 1)
        else:
            yield done
    elif step == "read":  # an apply; of a task that was once restarted it reopens first
        broken = world.state == "broken"
        yield at("graph" if restarts else _applying(actor), reopened=world.reopened if broken else -1)
    elif step == "graph":
        changed = world
        if world.known[place] < restarts:
            known = _with(world.known, place, restarts)
            changed = world._replace(known=known, failed=world.failed - {task})
        yield at("look" if actor.reopened >= 0 else "unlist", changed)
    elif step == "look":
        yield at("reopen" if not world.failed and task in world.open else "unlist")
    elif step == "reopen":
        if (world.state, world.reopened) == ("broken", actor.reopened):
            yield at("look again", world._replace(state="running", reopened=world.reopened + 1))
        else:
            yield at("look again")
    elif step == "look again":
        after = actor._replace(step="unlist")
        for other in TASKS:
            decision = world.decisions[TASKS.index(other)]
            if other in world.failed and decision.state == "error":
                after = Actor("interrupt", other, decision.restarts, "error", then=after)
        yield done[0], _work(world, number, after)
    elif step == "unlist":
        kept = world.listed[place] >= restarts
        listed = world.listed if kept else _with(world.listed, place, NOT_LISTED)
        following = at(_applying(actor), world._replace(listed=listed))
        yield following if actor.end != "queue" else (following[0], _work(following[1], number, IDLE))
    elif step == "apply":
        if task not in world.open:
            yield at("finish")
        else:
            yield at("finish", world._replace(open=world.open - {task}, failed=world.failed - {task}))
    elif step == "finish":
        over = not world.open and world.state == "running"
        ended = world._replace(state="finished") if over else world
        yield done[0], _work(_rest(ended, actor), number, IDLE)
    elif step == "interrupt":
        if world.state in ("running", "broken"):
            yield at("note", reopened=world.reopened if world.state == "running" else -1)
        else:
            yield done[0], _rest(done[1], actor)
    elif step == "note":
        if task in world.open and world.known[place] == restarts:
            yield at("list", world._replace(failed=world.failed | {task}))
        else:
            yield done[0], _rest(done[1], actor)
    elif step == "list":
        yield at("break", world._replace(listed=_with(world.listed, place, max(world.listed[place], restarts))))
    elif step == "break":
        if (world.state, world.reopened) == ("running", actor.reopened):
            ended = world._replace(state="broken")
            yield done[0], _work(_rest(ended, actor), number, _following(actor))
        else:
            yield at("look whether it is stale")
    elif step == "look whether it is stale":
        stale = (task not in world.failed or world.known[place] != restarts) and world.listed[place] <= restarts
        listed = _with(world.listed, place, NOT_LISTED) if stale else world.listed
        yield done[0], _work(_rest(world._replace(listed=listed), actor), number, _following(actor))


def _following(actor: Actor) -> Actor:
    return Actor(*actor.then) if actor.then else IDLE


def _applying(actor: Actor) -> str:
    return "interrupt" if actor.end == "error" else "apply"


def _rest(world: World, actor: Actor) -> World:
    """The word that a decision is applied, of this life only; one that was met in a look at the graph says nothing."""
    decision = world.decisions[TASKS.index(actor.task)]
    if actor.then or decision.state == "queued" or decision.restarts != actor.restarts:
        return world
    return _decide(world, actor.task, decision._replace(live=False))


def _decide(world: World, task: str, decision: Decision) -> World:
    return world._replace(decisions=_with(world.decisions, TASKS.index(task), decision))


def _work(world: World, number: int, actor: Actor) -> World:
    if number == len(world.appliers):
        return world._replace(operator=actor)
    # In an order of their own: which of them does what makes no difference.
    return world._replace(appliers=tuple(sorted(_with(world.appliers, number, actor))))


def _with(values: Any, place: int, value: Any) -> Any:
    return (*values[:place], value, *values[place + 1 :])


def tells_the_truth(world: World, cuts: bool) -> bool:
    """Whether the records say what is, where nothing is left to do that anybody would come back to.

    One whose cut came just after it had listed something stale may leave that listed: the next restart removes it.
    """
    both = list(zip(TASKS, world.decisions, world.listed, strict=True))
    wrong = frozenset(task for task, decision, _ in both if decision.state == "error")
    told = frozenset(task for task, decision, life in both if task in wrong and life == decision.restarts)
    stale = frozenset(task for task, _, life in both if life != NOT_LISTED) - told
    if stale and not cuts:
        return False
    return (world.state == "broken" and bool(wrong) and wrong == world.failed == told) or (
        world.state == "finished" and not wrong
    )


def explore(most_restarts: Sequence[int], appliers: int, cuts: bool) -> tuple[int, int]:
    """(states, states that are ends), with so many restarts of A and B, appliers, and with cuts or without.

    Raises AssertionError with the way to a bad state.
    """
    start = START._replace(appliers=(IDLE,) * appliers)
    seen: dict[World, tuple[World, Any] | None] = {start: None}
    waiting = deque([start])
    ends = 0
    while waiting:
        world = waiting.popleft()
        if world.state == "finished":
            well = {decision.state for decision in world.decisions} == {"value"}
            assert well, f"finished without all values:\n{way(seen, world)}"
        following = [*going_on(world)]
        if not following:
            assert tells_the_truth(world, cuts), f"left at that:\n{way(seen, world)}"
            ends += 1
        for label, after in (*following, *disturbances(world, most_restarts, cuts)):
            if after not in seen:
                seen[after] = (world, label)
                waiting.append(after)
    return len(seen), ends


def way(seen: dict[World, Any], world: World) -> str:
    """How a state was reached."""
    lines = []
    while (came := seen[world]) is not None:
        lines.append(f"{came[1]}  ->  {world}")
        world = came[0]
    return "\n".join(reversed(lines))
