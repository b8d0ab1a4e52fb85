"""The call of an actor's function: what goes in, and what comes of it. Nothing is written here but heartbeats."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from recovery import metrics
from recovery.engine import outcomes
from recovery.engine.actor import Actor
from recovery.engine.context import Attempt
from recovery.engine.heartbeats import beating
from recovery.engine.host import Host
from recovery.engine.in_hand import InHand
from recovery.engine.resolve import arguments
from recovery.errors import ClaimLost, TooLarge
from recovery.records import Child, Outcome, Task
from recovery.store import Store

log = logging.getLogger(__name__)

_ADVICE = "store the data elsewhere and pass its address, or join it in parts"


def call(
    store: Store, actor: Actor[..., Any], task: Task, here: InHand, host: Host
) -> tuple[Outcome, tuple[Child, ...]] | None:
    """The outcome of a task that is in hand and the children it scheduled; None if it gave up its claim. Raises
    NotReady and DamagedRecord for what it is to be called with."""
    decision = here.decision
    try:
        positional, named = arguments(store, task, here.outcomes)
    except TooLarge as error:
        return outcomes.of_error(TooLarge(f"arguments of {actor.name}: {error}; {_ADVICE}"), decision), ()
    # Around all that is the application's: to turn a value or an error into text calls it as well.
    with host.running(decision, actor.preferences.worker_timeout):
        return _run(Attempt(store, decision, actor.preferences), actor, positional, named, host)


def _run(
    attempt: Attempt, actor: Actor[..., Any], positional: Sequence[Any], named: Mapping[str, Any], host: Host
) -> tuple[Outcome, tuple[Child, ...]] | None:
    decision, began = attempt.decision, time.perf_counter()
    try:
        with attempt, beating(attempt):
            return outcomes.of_value(attempt, actor.function(*positional, **named)), attempt.children()
    except ClaimLost:
        metrics.STALE.labels("claim lost").inc()
        return None
    except BaseException as error:
        if host.ends(error):
            raise
        outcome = outcomes.of_error(error, decision)
        assert outcome.error is not None
        log.warning("%s %s: %s\n%s", actor.name, decision.id, outcome.error.message, outcome.error.stack)
        return outcome, ()
    finally:
        metrics.ATTEMPT_SECONDS.labels(actor.name).observe(time.perf_counter() - began)
