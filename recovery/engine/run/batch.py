"""One batch: what a slot claimed together is run, ended together, and goes on with what became ready by it.

What was claimed on the spot is the next round's hand: so chains run side by side, one step of each in a round.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recovery import metrics, tracing
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import pass_of
from recovery.engine.actors.context import attempting
from recovery.engine.apply.outbox import Applier
from recovery.engine.isolation import is_of_servers, tell
from recovery.engine.outages import through_outage
from recovery.engine.resources import Resources
from recovery.engine.run.hand import Hand, Watch
from recovery.engine.run.inputs import with_outcomes
from recovery.engine.run.taking import Fits, Taking
from recovery.engine.run.trying import Result, Tried, stale_results
from recovery.engine.steps import ClaimedTask, Ended, requeue_unrun
from recovery.errors import StoreError
from recovery.records import Decision, Outcome

if TYPE_CHECKING:
    from recovery.engine.run.slot import Slot

log = logging.getLogger(__name__)

SMALL = 4096
"""Characters of a value that is written with others: 64 of them are far from the 16 MB of a command."""
FEW = 100
"""Children that are written with others'."""

Note = Callable[[Actor[..., Any], Tried, float], None]


class Batch:
    """What one slot has claimed at once. `fits` tells how many of an actor's tasks may be run after
    others."""

    def __init__(
        self, resources: Resources, applier: Applier, slot: Slot, watch: Watch, note: Note, fits: Fits
    ) -> None:
        self._resources, self._applier, self._slot, self._watch = resources, applier, slot, watch
        self._note, self._fits = note, fits
        self._store = resources.store
        self.results: dict[str, Result] = {}
        """{decision: what came of it}, but of those that were given back."""
        self._took: dict[str, float] = {}
        """{decision: seconds of its attempt}, of those that are yet to be told of."""

    def run(self, claimed: Sequence[Decision], until: float) -> None:
        """Run these, and what becomes ready by them, until this moment; what is left of that is enqueued. Errors of
        servers are raised, and what has not begun then is given back."""
        round_ = [ClaimedTask(one) for one in claimed]
        while round_:
            try:
                hand = Hand(with_outcomes(self._store, round_))
            except Exception as error:
                self._give_back([here.decision for here in round_], error)
                raise
            try:
                with self._watch.over(hand, self._relieve):
                    while (here := hand.next(self._may_begin)) is not None:
                        self._run_one(here, hand)
            except Exception:  # it was a server's; what has ended is not to be done again for that
                self._put_down(hand, may_take=False)
                raise
            round_ = self._put_down(hand, may_take=time.monotonic() < until)

    def _may_begin(self, actor: str) -> bool:
        """Whether its actor is not blocked, as of now: who blocks it is told that no more of its tasks begin."""
        return not self._store.preferences.is_blocked(actor)

    def _run_one(self, here: ClaimedTask, hand: Hand) -> None:
        """Run one; where another program spoilt what it needs, that is told, and the others go on."""
        decision = here.decision
        try:
            with attempting(decision):
                self._try(here, hand)
            self._slot.host.was_done()
        except Exception as error:
            if isinstance(error, StoreError):  # else its deadline stands
                self._give_back([decision], error)
            if is_of_servers(error):
                raise
            if not isinstance(error, StoreError):
                self._slot.was_not_done(decision, decision.id, error)
            tell(decision.id, error)

    def _try(self, here: ClaimedTask, hand: Hand) -> None:
        decision, actor, began = here.decision, self._slot.actor(here.decision.actor), time.perf_counter()
        tried = self._slot.trying.run(actor, here, tracing.NOTHING, _nothing)
        took = self._took[decision.id] = time.perf_counter() - began
        self._note(actor, tried, took)
        if is_plain(tried) and tried.ended is not None:
            hand.keep(here, tried.ended)
            return
        result = tried.result
        if tried.ended is not None:
            result, _ = self._slot.end(actor, tried.ended, here, until=0.0)
        if tried.damaged is not None and result is Result.FAILED:
            log.error("%s %s: %s", actor.name, decision.id, tried.damaged)
        metrics.ATTEMPTS.labels(actor.name, result.value).inc()
        self.results[decision.id] = result
        self._tell(decision)

    def _relieve(self, hand: Hand, slow: Decision) -> None:
        """See to what waits for a slow task: by another thread than that which runs it."""
        self._put_down(hand, may_take=False)
        preferences = self._slot.actor(slow.actor).preferences
        # Its time began when it was claimed; what ran before it took some of that.
        self._store.decisions.extend(slow.id, pass_of(slow), preferences.worker_timeout, preferences.task_limit)

    def _put_down(self, hand: Hand, *, may_take: bool) -> list[ClaimedTask]:
        """Give back what has not begun, and write what has ended; what became ready by it, and was claimed here."""
        ended, unrun = hand.empty()
        try:
            self._give_back(unrun)
        finally:
            taken = self._write(ended, may_take=may_take)
        return taken

    def _write(self, ended: Sequence[tuple[ClaimedTask, Ended]], *, may_take: bool) -> list[ClaimedTask]:
        """Finish these, and have them applied; what became ready by them, and was claimed here."""
        accepted = self._finish([one for _, one in ended])
        heres = {one.decision.id: here for here, one in ended if one.decision.id in accepted}
        left = [one for _, one in ended if one.decision.id in accepted]
        taking = Taking(self._resources, self._slot, heres, self._fits)
        try:
            if may_take:
                left = taking.unlocked(left)
            self._applier.submit_all(left, taking.ready if may_take else None)
        except StoreError as error:
            self._give_back([here.decision for here in taking.taken], error)
            raise
        return taking.taken

    def _finish(self, ended: Sequence[Ended]) -> set[str]:
        by_actor: dict[str, list[Ended]] = defaultdict(list)
        for one in ended:
            by_actor[one.decision.actor].append(one)
        accepted: set[str] = set()
        for name, alike in by_actor.items():
            try:
                accepted |= self._finish_alike(name, alike)
            except StoreError as error:
                self._give_back([one.decision for one in ended if one.decision.id not in accepted], error)
                raise
        return accepted

    def _finish_alike(self, name: str, ended: Sequence[Ended]) -> set[str]:
        preferences = self._slot.actor(name).preferences
        accepted = through_outage(
            self._resources,
            lambda: self._store.decision_batches.finish(
                [_pair(one) for one in ended],
                accept_first=preferences.accept_first,
                worker=self._slot.holder,
                apply_timeout=self._resources.settings.apply_timeout,
            ),
            preferences.worker_timeout,
            ended[0].decision.id,
        )
        self.results |= {
            one.decision.id: Result.FINISHED if one.decision.id in accepted else Result.STALE_RESULT for one in ended
        }
        metrics.ATTEMPTS.labels(name, Result.FINISHED.value).inc(len(accepted))
        if len(accepted) < len(ended):
            stale_results([one.decision for one in ended if one.decision.id not in accepted])
            metrics.ATTEMPTS.labels(name, Result.STALE_RESULT.value).inc(len(ended) - len(accepted))
        if log.isEnabledFor(logging.INFO):
            for one in ended:
                with attempting(one.decision):
                    self._tell(one.decision)
        return accepted

    def _tell(self, decision: Decision) -> None:
        took, told = self._took.pop(decision.id, 0.0), "%s %s attempt %d: %s in %.3f s"
        log.debug(told, decision.actor, decision.id, decision.attempts, self.results[decision.id].value, took)

    def _give_back(self, decisions: Sequence[Decision], error: Exception | None = None) -> None:
        """Requeue what was claimed and is not run, or whose end could not be written."""
        if decisions:
            requeue_unrun(self._resources, {one.id: pass_of(one) for one in decisions}, self._slot.holder, error)


def is_plain(tried: Tried) -> bool:
    """Whether an attempt's end may be written with others': it has a value, and that and its children are small."""
    if tried.ended is None or tried.result is not Result.FINISHED:
        return False
    outcome, children = tried.ended.decision.outcome, tried.ended.decision.children
    if outcome is None or len(outcome.value or "") > SMALL or len(children) > FEW:
        return False
    return sum(len(child.args) for child in children) <= SMALL


def _pair(ended: Ended) -> tuple[Decision, Outcome]:
    assert ended.decision.outcome is not None, "what is plain has one"
    return ended.decision, ended.decision.outcome


def _nothing() -> None:
    return
