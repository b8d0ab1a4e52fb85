"""An explicit-state model of batches: quick tasks that one slot takes together, runs one after the other, and ends
together.

Two processes of one task each, A and B; workers with one slot each. A slot pops messages, claims what it popped, runs
it task by task, finishes, applies and ends what it ran. What is one update of many records in MongoDB is none that is
done as a whole: each record by itself, others in between, and cut off anywhere. So is all that is done to several here
a step for each of them, in any order that the engine might have; a model that does them together would promise more.

A slot is killed at any moment, alone or with its whole worker. Of a slot alone its parent knows what it ran; of a
worker nobody knows. What is known to have run counts a timeout; what only lay in hand counts none; and what may have
run is claimed `alone` from then on, so that the next time it is known.

Checked: at most one accepted decision of each task; a process ends only with its task's value; no task counts a timeout
that was not being run when a slot was killed; two kills at the most while it runs before one is counted; and never
stuck.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model import exploring
from tests.model.exploring import Reached, Step

MAX_KILLS, MAX_LOST = 2, 1
TASKS = "AB"
FIRST_MESSAGES = frozenset((task, 1) for task in TASKS)
"""The queue at the beginning: one message per task, of its first pass."""


class Decision(NamedTuple):
    """State 'queued', 'working' or 'finished', its pass, and what a loss leaves with it."""

    state: str = "queued"
    pas: int = 1
    in_batch: bool = False
    alone: bool = False
    timeouts: int = 0


class InHand(NamedTuple):
    """A task in a slot's hand: `step` is 'popped', 'claimed', 'running', 'ran', 'finished' or 'applied'."""

    task: str
    pas: int
    step: str


class Dead(NamedTuple):
    """Whose claims are to be given back: those of a slot that is gone, and what it ran, if that is known."""

    held: frozenset[tuple[str, int]]
    ran: str
    known: bool


class World(NamedTuple):
    """All records, the queue, the slots' hands, what is to be rescued; and, to check by, what was."""

    decisions: tuple[Decision, ...] = (Decision(), Decision())
    open: frozenset[str] = frozenset(TASKS)
    ended: frozenset[str] = frozenset()
    queue: frozenset[tuple[str, int]] = FIRST_MESSAGES
    hands: tuple[tuple[InHand, ...], ...] = ((),)
    dead: frozenset[Dead] = frozenset()
    accepted: tuple[int, ...] = (0, 0)
    killed_in: tuple[int, ...] = (0, 0)
    """How often a slot was killed while it ran this task, or held it by itself."""
    kills: int = 0
    lost: int = 0


def steps(world: World, variant: str = "") -> Iterator[Step[World]]:
    """Everything that can happen next. `variant` names a defect that is planted."""
    for number in range(len(world.hands)):
        yield from _slot(world, number, variant)
    yield from _rules(world, variant)
    if world.lost < MAX_LOST:
        for message in world.queue:
            yield ("lose", message), world._replace(queue=world.queue - {message}, lost=world.lost + 1), True


def _slot(world: World, number: int, variant: str) -> Iterator[Step[World]]:
    hand = world.hands[number]

    def having(now: tuple[InHand, ...], world: World = world) -> World:
        return world._replace(hands=tuple(sorted([*world.hands[:number], now, *world.hands[number + 1 :]])))

    def changed(one: InHand, step: str, world: World = world) -> World:
        return having(tuple(sorted((*(i for i in hand if i is not one), one._replace(step=step)))), world)

    steps_in_hand = {one.step for one in hand}
    if steps_in_hand <= {"popped"}:
        for task, pas in world.queue:
            if all(one.task != task for one in hand):
                popped = having((*hand, InHand(task, pas, "popped")), world._replace(queue=world.queue - {(task, pas)}))
                yield ("pop", task), popped, False
    if hand and world.kills < MAX_KILLS:
        yield from _kills(world, hand, having(()))
    for one in hand:
        others = tuple(i for i in hand if i is not one)
        decision = _of(world, one.task)
        if one.step == "popped":
            # What may have ended its slot is no part of a batch: it is left for who takes it by itself.
            if decision[:2] != ("queued", one.pas):
                yield ("stale message", one.task), having(others), False
            elif not (decision.alone and others) or variant == "alone in a batch":
                claimed = decision._replace(state="working", in_batch=len(hand) > 1)
                yield ("claim", one.task), changed(one, "claimed", _set(world, one.task, claimed)), False
            else:
                put_back = having(others, world._replace(queue=world.queue | {(one.task, one.pas)}))
                yield ("put back", one.task), put_back, False
        elif one.step == "claimed":
            if "running" not in steps_in_hand and "popped" not in steps_in_hand:
                yield ("run", one.task), changed(one, "running"), False
            if _is_mine(decision, one):
                yield ("give back", one.task), having(others, _queued(world, one.task)), False
        elif one.step == "running":
            yield ("came back", one.task), changed(one, "ran"), False
        elif one.step == "ran":
            if decision.state != "finished":  # accept_first
                done = _set(world, one.task, decision._replace(state="finished", in_batch=False))
                done = done._replace(accepted=_plus(done.accepted, one.task))
                yield ("finish", one.task), changed(one, "finished", done), False
            else:
                yield ("stale result", one.task), having(others), False
        elif one.step == "finished":
            yield ("apply", one.task), changed(one, "applied", world._replace(open=world.open - {one.task})), False
        else:
            over = world.ended | {one.task} if one.task not in world.open else world.ended
            yield ("end the process of", one.task), having(others, world._replace(ended=over)), False


def _kills(world: World, hand: tuple[InHand, ...], without: World) -> Iterator[Step[World]]:
    held = frozenset((one.task, one.pas) for one in hand if one.step in ("claimed", "running", "ran"))
    ran = next((one.task for one in hand if one.step == "running"), "")
    without = without._replace(kills=world.kills + 1)
    for task, _ in held:
        # One that is claimed by itself counts: it is run at once.
        if task == ran or not _of(world, task).in_batch:
            without = without._replace(killed_in=_plus(without.killed_in, task))
    for known in (True, False):
        dead = without.dead | {Dead(held, ran if known else "", known)} if held else without.dead
        yield ("killed", "the slot" if known else "the worker"), without._replace(dead=dead), True


def _rules(world: World, variant: str) -> Iterator[Step[World]]:
    for dead in world.dead:
        yield from _rescue(world, dead, variant)
    for task in TASKS:
        decision = _of(world, task)
        on_its_way = (task, decision.pas) in world.queue or any(
            one == InHand(task, decision.pas, "popped") for hand in world.hands for one in hand
        )
        if decision.state == "queued" and not on_its_way:
            yield ("MESSAGE_LOST", task), _queued(world, task), False
        elif decision.state == "queued" and world.lost < MAX_LOST:
            yield ("MESSAGE_LOST, too early", task), _queued(world._replace(lost=world.lost + 1), task), True
        if decision.state == "finished" and task in world.open:
            yield ("DECISION_NOT_APPLIED", task), world._replace(open=world.open - {task}), False
        if task not in world.open and task not in world.ended:
            yield ("FINISH_NOT_RECORDED", task), world._replace(ended=world.ended | {task}), False


def _rescue(world: World, dead: Dead, variant: str) -> Iterator[Step[World]]:
    """WORKER_LOST, one record after the other; whoever does it may be cut off, and somebody does it again."""
    left = frozenset((task, pas) for task, pas in dead.held if _is_mine(_of(world, task), InHand(task, pas, "")))
    if not left:
        yield ("all is given back",), world._replace(dead=world.dead - {dead}), False
    for task, _ in left:
        decision = _of(world, task)
        counts = task == dead.ran if dead.known and decision.in_batch else not decision.in_batch
        counts = counts or variant == "all count"
        alone = decision.alone or (decision.in_batch and not dead.known and variant != "never alone")
        # Of what is claimed by itself nobody needs to be told that it was run: it may have been.
        timeouts = decision.timeouts + counts
        marked = _set(world, task, decision._replace(timeouts=min(timeouts, MAX_KILLS), alone=alone))
        yield ("WORKER_LOST", task), _queued(marked, task), False


def _is_mine(decision: Decision, one: InHand) -> bool:
    return decision.state == "working" and decision.pas == one.pas


def _of(world: World, task: str) -> Decision:
    return world.decisions[TASKS.index(task)]


def _set(world: World, task: str, decision: Decision) -> World:
    place = TASKS.index(task)
    return world._replace(decisions=(*world.decisions[:place], decision, *world.decisions[place + 1 :]))


def _queued(world: World, task: str) -> World:
    """Queued under a new pass, and its message pushed."""
    decision = _of(world, task)
    pas = decision.pas + 1
    queued = _set(world, task, decision._replace(state="queued", pas=pas, in_batch=False))
    return queued._replace(queue=queued.queue | {(task, pas)})


def canonical(world: World) -> World:
    """The one that stands for all that differ in nothing but the numbers of their passes, and in messages that nobody
    can claim by any more."""
    queue = frozenset(m for m in world.queue if _of(world, m[0])[:2] == ("queued", m[1]))
    numbers: dict[tuple[str, int], int] = {}
    for task in TASKS:
        held = {pas for dead in world.dead for t, pas in dead.held if t == task}
        held |= {one.pas for hand in world.hands for one in hand if one.task == task}
        held |= {pas for t, pas in queue if t == task} | {_of(world, task).pas}
        numbers |= {(task, pas): number for number, pas in enumerate(sorted(held), 1)}
    if all(pas == number for (_, pas), number in numbers.items()):  # most are as they should be
        return world if queue == world.queue else world._replace(queue=queue)
    decisions = tuple(d._replace(pas=numbers[t, d.pas]) for t, d in zip(TASKS, world.decisions, strict=True))
    hands = (tuple(sorted(one._replace(pas=numbers[one.task, one.pas]) for one in hand)) for hand in world.hands)
    dead = frozenset(one._replace(held=frozenset((t, numbers[t, pas]) for t, pas in one.held)) for one in world.dead)
    queue = frozenset((t, numbers[t, pas]) for t, pas in queue)
    return world._replace(decisions=decisions, hands=tuple(sorted(hands)), dead=dead, queue=queue)


def _plus(counts: tuple[int, ...], task: str) -> tuple[int, ...]:
    place = TASKS.index(task)
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])


def explore(slots: int, variant: str = "", without: str = "-") -> Reached[World]:
    """All states. Raises AssertionError with the way to a bad one. `without` is the beginning of a rule's name."""

    def possible(world: World) -> Iterator[Step[World]]:
        return (step for step in steps(world, variant) if not step[0][0].startswith(without))

    start = World(hands=((),) * slots)
    return exploring.explore(start, possible, wrong=_wrong, is_over=_is_over, alike=canonical)


def _is_over(world: World) -> bool:
    return len(world.ended) == len(TASKS)


def _wrong(world: World) -> str:
    if max(world.accepted) > 1:
        return "two accepted decisions"
    for task, decision, killed in zip(TASKS, world.decisions, world.killed_in, strict=True):
        if task in world.ended and decision.state != "finished":
            return "ended without its value"
        if decision.timeouts > killed:
            return "counted, and not run"
        if decision.state == "queued" and decision.timeouts < killed - 1:
            return "killed twice, and not counted"
    return ""
