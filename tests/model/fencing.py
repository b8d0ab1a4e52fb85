"""An explicit-state model of creation against removal: a process of one task, whose start is registered by any of
several creators, is run, ends, is removed, and is read back from its export in a later epoch.

Each creator may stand still between any two of its writes, or be cut off for good. A scanner requeues what is queued
and has no message. Every interleaving is explored.

Checked in each state: the task is accepted once at most, whatever epoch; what a creator made for a process that is gone
is not run; and once the process has been read back, its record is the one that was read back. Checked of the whole:
from every state an end can be reached without a further fault: nothing is queued, and no message waits.

Change the order of writes here before you change it in the engine's `registering`, `fencing`, `removal` and the store's
`exports`. Bounds of the model, not of the design: one task, one removal, one import, three passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tests.model import exploring
from tests.model.exploring import Step

LATER = 1
"""The epoch that the process is read back in; it is above any that it had."""
MAX_PASS = 3


class Decision(NamedTuple):
    """State '-' (absent), 'queued', 'working' or 'finished'; its epoch and pass, and whether nobody has claimed it."""

    state: str = "-"
    epoch: int = 0
    pas: int = 0
    fresh: bool = False


class World(NamedTuple):
    process: str
    """'running', 'finished', 'removing', '-' (gone), 'back'."""
    decision: Decision
    messages: frozenset[int]
    """Passes that messages bring."""
    creators: tuple[tuple[str, int], ...]
    """At which step, with which pass: 'insert', 'look', 'push', 'done'."""
    remover: str
    accepted: int
    passes: int
    ran_for_nobody: bool = False


START = World("running", Decision(), frozenset(), (("insert", 0), ("insert", 0)), "idle", 0, 0)
WITHOUT = frozenset[str]()
"""Parts of the design that a test takes out, to see that the model needs them."""


def steps(world: World, without: frozenset[str] = WITHOUT) -> Iterator[Step[World]]:
    """Everything that can happen next."""
    for number, creator in enumerate(world.creators):
        yield from _creator(world, number, *creator, without)
    yield from _worker(world)
    yield from _scanner(world, without)
    yield from _removal(world, without)


def _creator(world: World, number: int, step: str, pas: int, without: frozenset[str]) -> Iterator[Step[World]]:
    def at(after: str, changed: World = world, its: int = pas) -> World:
        creators = tuple((after, its) if place == number else one for place, one in enumerate(changed.creators))
        return changed._replace(creators=creators)

    if step == "done":
        return
    yield ("cut off", number), at("done"), True
    if step == "insert":
        if world.decision.state != "-":
            yield ("insert", number, "there"), at("done"), False
        elif world.passes < MAX_PASS:
            its = world.passes + 1
            made = world._replace(decision=Decision("queued", 0, its, True), passes=its)
            yield ("insert", number), at("look" if "look" not in without else "push", made, its), False
    elif step == "look":
        if _is_there(world, 0):
            yield ("look", number), at("push"), False
        else:
            # Only as it was made.
            ours = world.decision == Decision("queued", 0, pas, True)
            gone = world._replace(decision=Decision()) if ours else world
            yield ("withdraw", number), at("done", gone), False
    elif step == "push":
        yield ("push", number), at("done", world._replace(messages=world.messages | {pas})), False


def _is_there(world: World, epoch: int) -> bool:
    if world.process == "back":
        return epoch == LATER
    return world.process in ("running", "finished")


def _worker(world: World) -> Iterator[Step[World]]:
    decision = world.decision
    for pas in world.messages:
        taken = world._replace(messages=world.messages - {pas})
        yield ("lose", pas), taken, True
        if decision.state == "queued" and decision.pas == pas:
            claimed = taken._replace(decision=decision._replace(state="working", fresh=False))
            yield ("claim", pas), claimed._replace(ran_for_nobody=not _is_there(world, decision.epoch)), False
        else:
            yield ("stale", pas), taken, False
    if decision.state == "working":
        ended = world._replace(decision=decision._replace(state="finished"), accepted=world.accepted + 1)
        yield ("finish",), ended._replace(process="finished") if world.process == "running" else ended, False


def _scanner(world: World, without: frozenset[str]) -> Iterator[Step[World]]:
    """MESSAGE_LOST, START_NOT_REGISTERED, ORPHAN (which is told, and is no business of anybody's here)."""
    decision = world.decision
    if decision.state == "queued" and decision.pas not in world.messages:
        if decision.fresh and "scanner's look" not in without and not _is_there(world, decision.epoch):
            yield ("withdraw", "scanner"), world._replace(decision=Decision()), False
        elif world.passes < MAX_PASS:
            its = world.passes + 1
            queued = world._replace(decision=decision._replace(pas=its), messages=world.messages | {its}, passes=its)
            yield ("requeue",), queued, False
        else:  # a pass that was, and whose message is gone: for the model's bound alone
            yield ("requeue",), world._replace(messages=world.messages | {decision.pas}), False
    if world.process == "running" and decision.state == "-" and all(one == "done" for one, _ in world.creators):
        yield ("register",), world._replace(creators=(("insert", 0), *world.creators[1:])), False


def _removal(world: World, without: frozenset[str]) -> Iterator[Step[World]]:
    """Begin, the records, the process; then it is read back."""
    if world.remover == "idle" and world.process == "finished":
        yield ("begin removal",), world._replace(process="removing", remover="records"), True
    elif world.remover == "records":
        yield ("remove records",), world._replace(decision=Decision(), remover="process"), False
    elif world.remover == "process":
        yield ("remove process",), world._replace(process="-", remover="gone"), False
    elif world.remover == "gone":
        there = world.decision.state != "-"
        kept = there and "replace" in without
        back = world.decision if kept else Decision("finished", LATER)
        yield ("import",), world._replace(process="back", decision=back, remover="done"), True


def _wrong(world: World) -> str:
    if world.ran_for_nobody:
        return "a task of a process that is gone is run"
    if world.accepted > 1:
        return "accepted twice"
    if world.process == "back" and world.decision != Decision("finished", LATER):
        return "what was read back is not what is there"
    return ""


def _is_over(world: World) -> bool:
    at_rest = world.decision.state in ("-", "finished") and not world.messages
    return at_rest and world.process in ("finished", "-", "back")


def explore(without: frozenset[str] = WITHOUT) -> int:
    """How many states there are. Raises AssertionError with the way to one that is wrong, or stuck."""
    return len(exploring.explore(START, partial(steps, without=without), wrong=_wrong, is_over=_is_over))
