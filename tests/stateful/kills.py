"""Processes of a cluster that are really killed: forked, and ended by SIGKILL at a step that a seed draws."""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any

from recovery import InputError
from tests.faults import Kind, Plan, under
from tests.stateful import checks
from tests.stateful.cluster import IDLE, MESSAGE, WORK, Cluster, go_on
from tests.stateful.programs import ANY_ATTEMPT, HOLDER_ONLY, numbered
from tests.stateful.rest import bring_to_rest

LIVES, PLACES = 12, 60
"""So many processes, one after the other, each killed at one of its first steps or when it is through."""
KILLS = (Kind.KILL, Kind.KILL_AFTER, Kind.KILL_HALF)


def node(
    own: int = 1,
    *then: Any,
    actor: str = ANY_ATTEMPT,
    beats: bool = False,
    raises: str = "",
    away: int = 0,
    fallible: bool = False,
) -> Any:
    """A program's node, which returns what it and its children come to."""
    return numbered({
        "own": own, "actor": actor, "then": list(then), "returns": "all",
        "loop": 0, "later": False, "beats": beats, "away": away, "raises": raises, "fallible": fallible,
    })  # fmt: skip


FAN_OUT = node(1, [node(2), []], [node(3, actor=HOLDER_ONLY), []], [node(4), [0, 1]])
CHAIN = node(5, [node(6), []], [node(7), [0]], [node(8, actor=HOLDER_ONLY), [1]], [node(9), [2]])
PROGRAM = node(
    10,
    [FAN_OUT, []],
    [CHAIN, []],
    [node(11, beats=True), [0, 1]],
    [node(12, raises="until mended"), [0]],
    [node(13, raises="always", fallible=True), []],
    [node(14, away=1), []],
)
PROGRAMS = {"the one": PROGRAM, "the other": CHAIN}
"""Of the second one an operator soon has enough."""


def kill_again_and_again(cluster: Cluster, seed: int) -> int:
    """Kill whoever brings processes on, restarts what failed or aborts, and check what is left; how many were killed.
    A survivor ends it."""
    chance, memory, killed = random.Random(seed), checks.Memory(), 0
    go_on(on_the_spot=chance.random() < 0.5, size=chance.choice([1, 2, 3]), by_itself=chance.random() < 0.5)
    ids = {custom_id: cluster.start(program, custom_id) for custom_id, program in PROGRAMS.items()}
    memory.excused.update(ids.values())  # nobody tells what those did who were killed
    for life in range(LIVES):
        plan = Plan.seeded(chance.getrandbits(32), KILLS, most=1, places=PLACES)
        restarts, unwanted = chance.random() < 0.5, ids["the other"] if life % 3 == 1 else None
        cluster.mended |= restarts and life > LIVES // 2
        memory.restarts.update(ids.values() if restarts else ())
        memory.aborts.update([unwanted] if unwanted else ())
        killed += _lives(cluster, plan, restarts, unwanted)
        memory.check(checks.read(cluster.database))
        cluster.passing.pass_by(chance.choice([0, MESSAGE + 1, WORK + 1, IDLE + 1]))
    bring_to_rest(cluster, PROGRAMS, memory)
    cluster.mended = True
    memory.restarts.update(ids.values())
    cluster.restart(cluster.member(), None)
    bring_to_rest(cluster, PROGRAMS, memory, mended=True)
    return killed


def _lives(cluster: Cluster, plan: Plan, restarts: bool, unwanted: str | None) -> bool:
    """A process does what an operator asks of it and brings on what it can, under the plan; whether it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with under(plan):
                member = cluster.member()
                if restarts:
                    cluster.restart(member, None)
                if unwanted is not None:
                    with suppress(InputError):  # it has finished
                        cluster.abort(member, unwanted)
                cluster.bring_to_end(member)
            status = 0
        except BaseException:  # told here: what is left of it is its status
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"it failed, and was not killed: {plan}"
        return False
    assert os.WTERMSIG(status) == signal.SIGKILL
    return True
