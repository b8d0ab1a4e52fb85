"""One batch: what a slot claimed together is run, ended together, and goes on with what became ready by it. One task is
a batch of one.

    run, run, run … → finish all → claim what is unlocked → apply all, and claim what becomes ready → run …

What was claimed on the spot is the next round's hand: so chains run side by side, one step of each in a round.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial

from recovery import metrics, tracing
from recovery.engine.actors.context import attempting
from recovery.engine.apply.outbox import Outbox
from recovery.engine.isolation import in_a_line, is_of_servers, tell
from recovery.engine.outages import through_outage
from recovery.engine.rejections import Conditions, Step, note_rejected
from recovery.engine.run.hand import Hand, Watch
from recovery.engine.run.pace import Pace
from recovery.engine.run.taking import Taking
from recovery.engine.run.trying import Place, Result, Tried, stale_results
from recovery.engine.steps import ClaimedTask, Ended
from recovery.errors import StoreError
from recovery.records import Decision
from recovery.records.ids import record_id

log = logging.getLogger(__name__)

SMALL = 4096
"""Characters of a value that is written with others: 64 of them are far from the 16 MB of a command."""
FEW = 100
"""Children that are written with others'."""


class Batch:
    """What one slot has claimed at once."""

    def __init__(self, place: Place, outbox: Outbox, pace: Pace, watch: Watch) -> None:
        self._place, self._outbox, self._pace, self._watch = place, outbox, pace, watch
        self._store = place.resources.store
        self.results: dict[str, Result] = {}
        """{decision: what came of it}, but of those that were given back."""
        self._held: dict[str, Decision] = {}
        """What is to be given back if it can't be run, or its end can't be written."""
        self._took: dict[str, float] = {}
        self._span = tracing.NOTHING

    def run(self, claimed: Sequence[Decision], until: float) -> None:
        """Run these, and what becomes ready by them, until this moment; what is left of that is enqueued. Errors of
        servers are raised, and what has not begun then is given back."""
        round_ = [ClaimedTask(one) for one in claimed]
        while round_:
            first = round_[0].decision
            self._held = {here.decision.id: here.decision for here in round_}
            # A batch is of one while there are traces: a span is told how its attempt ended.
            self._span = tracing.attempt(first) if len(round_) == 1 else tracing.NOTHING
            with self._span, attempting(first) if len(round_) == 1 else nullcontext():
                round_ = self._run_round(round_, until)

    def _run_round(self, round_: Sequence[ClaimedTask], until: float) -> list[ClaimedTask]:
        try:
            hand = Hand(self._with_outcomes(round_))
        except Exception as error:
            self._give_back([here.decision for here in round_], error)
            raise
        alone = len(round_) == 1
        try:
            with nullcontext() if alone else self._watch.over(hand, self._relieve):
                while (here := hand.next(lambda actor: not self._place.is_blocked(actor))) is not None:
                    self._run_one(here, hand, alone=alone)
        except Exception:  # it was a server's; what has ended is not to be done again for that
            self._put_down(hand, may_take=False)
            raise
        began = time.perf_counter()
        taken = self._put_down(hand, may_take=time.monotonic() < until)
        if alone:
            self._pace.note_around(time.perf_counter() - began)
        return taken

    def _with_outcomes(self, round_: Sequence[ClaimedTask]) -> list[ClaimedTask]:
        """These, each with the outcomes of its dependencies, as a majority has them, as far as they are there and
        small: what is missing each reads by itself. Errors of servers are raised."""
        missing: dict[str, list[str]] = {}
        for here in round_:
            task = here.decision.task()
            if task is not None and (names := [name for name in task.deps if name not in here.outcomes]):
                missing[here.decision.id] = [record_id(task.process_id, name) for name in names]
        if len(missing) < 2:
            return list(round_)
        try:
            found = self._store.decisions.known_outcomes(list({key: None for some in missing.values() for key in some}))
        except Exception as error:
            if is_of_servers(error):
                raise
            log.debug("what %d tasks waited for is not read together (%s)", len(missing), in_a_line(error))
            return list(round_)
        return [here.knowing(found, missing.get(here.decision.id, ())) for here in round_]

    def _run_one(self, here: ClaimedTask, hand: Hand, *, alone: bool) -> None:
        """Run one; where another program spoilt what it needs, that is told, and the others go on."""
        decision = here.decision
        try:
            with attempting(decision):
                tried = self._try(here)
                if alone or is_plain(tried):
                    hand.keep(here, tried)
                else:
                    self._write([(here, tried)], may_take=False, alone=True)
            self._place.host.was_done()
        except Exception as error:
            if isinstance(error, StoreError):  # else its deadline stands
                self._give_back([decision], error)
            if is_of_servers(error):
                raise
            if not isinstance(error, StoreError):
                self._place.was_not_done(decision, error)
            tell(decision.id, error)

    def _try(self, here: ClaimedTask) -> Tried:
        decision, began = here.decision, time.perf_counter()
        actor = self._place.actor(decision.actor)
        tried = self._place.trying.run(actor, here, self._span, lambda: self._let_go(decision))
        took = self._took[decision.id] = time.perf_counter() - began
        self._pace.note(decision.actor, took)
        if not (is_plain(tried) and all(map(self._pace.is_quick, _made_ready(tried)))):
            self._pace.note_unfit(decision.actor)
        return tried

    def _let_go(self, decision: Decision) -> None:
        self._held.pop(decision.id, None)

    def _relieve(self, hand: Hand, slow: Decision) -> None:
        """See to what waits for a slow task: by another thread than that which runs it."""
        self._put_down(hand, may_take=False)
        preferences = self._place.actor(slow.actor).preferences
        # Its time began when it was claimed; what ran before it took some of that.
        self._store.decisions.extend(slow.id, str(slow.pass_key), preferences.worker_timeout, preferences.task_limit)

    def _put_down(self, hand: Hand, *, may_take: bool) -> list[ClaimedTask]:
        """Give back what has not begun, and write what has ended; what became ready by it, and was claimed here."""
        done, unrun = hand.empty()
        try:
            self._give_back(unrun)
        finally:
            taken = self._write(done, may_take=may_take, alone=len(done) == 1)
        return taken

    def _write(self, done: Sequence[tuple[ClaimedTask, Tried]], *, may_take: bool, alone: bool) -> list[ClaimedTask]:
        """Finish what has ended, and have it applied; what became ready by it, and was claimed here."""
        accepted = self._finish([tried.ended for _, tried in done if tried.ended is not None])
        self._close(done, accepted)
        heres = {here.decision.id: here for here, _ in done if here.decision.id in accepted}
        ended = [tried.ended for here, tried in done if tried.ended is not None and here.decision.id in accepted]
        if not ended:
            return []
        taking = Taking(self._place, heres, self._room_alone if alone else self._room)
        try:
            try:
                ended = taking.unlocked(ended) if may_take else ended
            except StoreError:
                self._outbox.put(ended)
                raise
            # What makes nothing ready keeps no slot.
            waits = may_take and (not alone or any(map(_may_make_ready, ended)))
            self._outbox.put(ended, taking.ready if waits else None)
        except StoreError as error:
            self._place.give_back([here.decision for here in taking.taken], error)
            raise
        return taking.taken

    def _room(self, name: str) -> int:
        """How many of an actor's tasks may be run after others."""
        served = self._place.may_take(name) and self._place.actor(name).preferences.restarts_lost_attempts
        return self._pace.fits(name) if served else 0

    def _room_alone(self, name: str) -> int:
        """The same after one that was alone."""
        return 1 if self._place.may_take(name) else 0

    def _finish(self, ended: Sequence[Ended]) -> set[str]:
        by_actor: dict[str, list[Ended]] = defaultdict(list)
        for one in ended:
            by_actor[one.decision.actor].append(one)
        accepted: set[str] = set()
        for name, alike in by_actor.items():
            preferences = self._place.actor(name).preferences
            finish = partial(
                self._store.decisions.finish,
                [one.decision for one in alike],
                accept_first=preferences.accept_first,
                worker=self._place.holder,
                apply_timeout=self._place.resources.settings.apply_timeout,
            )
            try:
                # The work is done; an outage shorter than the time it was given must not throw it away.
                accepted |= through_outage(
                    self._place.resources, finish, preferences.worker_timeout, alike[0].decision.id
                )
            except StoreError as error:
                self._give_back([one.decision for one in ended if one.decision.id not in accepted], error)
                raise
        if stale := [one.decision for one in ended if one.decision.id not in accepted]:
            stale_results(stale)
            rejected = {one.id: Conditions.of_finish(one, self._is_taken_late(one)) for one in stale}
            note_rejected(self._place.resources, Step.FINISH, rejected)
        return accepted

    def _is_taken_late(self, decision: Decision) -> bool:
        return self._place.actor(decision.actor).preferences.accept_first and not decision.failed

    def _close(self, done: Sequence[tuple[ClaimedTask, Tried]], accepted: set[str]) -> None:
        """Count what came of attempts, and tell it."""
        counts = Counter[tuple[str, Result]]()
        for here, tried in done:
            decision, result = here.decision, tried.result
            if tried.ended is not None and decision.id not in accepted:
                result = Result.STALE_RESULT
            self.results[decision.id] = result
            counts[decision.actor, result] += 1
            if tried.damaged is not None and result is Result.FAILED:  # else it is not its task any more
                log.error("%s %s: %s", decision.actor, decision.id, tried.damaged)
            self._span.end_as(result.value, tried.kind)
            took = self._took.pop(decision.id, 0.0)
            if log.isEnabledFor(logging.DEBUG):
                told = "%s %s attempt %d: %s in %.3f s"
                with attempting(decision):
                    log.debug(told, decision.actor, decision.id, decision.attempts, result.value, took)
        for (actor, result), count in counts.items():
            metrics.ATTEMPTS.labels(actor, result.value).inc(count)

    def _give_back(self, decisions: Sequence[Decision], error: Exception | None = None) -> None:
        """Requeue what was claimed and is not run, or whose end could not be written."""
        self._place.give_back([one for one in decisions if self._held.pop(one.id, None) is not None], error)


def is_plain(tried: Tried) -> bool:
    """Whether an attempt's end may be written with others': it has a value, and that and its children are small."""
    if tried.ended is None or tried.result is not Result.FINISHED:
        return False
    outcome, children = tried.ended.decision.outcome, tried.ended.decision.children
    if outcome is None or len(outcome.value or "") > SMALL or len(children) > FEW:
        return False
    return sum(len(child.args) for child in children) <= SMALL


def _made_ready(tried: Tried) -> Iterator[str]:
    """Actors of tasks that a task made ready. One that is slow is run where it became ready, without a message, and by
    many slots at once: so is what makes it ready."""
    if tried.ended is not None:
        children = tried.ended.decision.children
        yield from (child.actor for child in children if not (child.deps or child.eta or child.delay))
        yield from tried.ended.task.unlocks.values() if not children else ()


def _may_make_ready(ended: Ended) -> bool:
    decision = ended.decision
    if ended.successor is not None:
        return False  # that is ready, and claimed
    return bool(decision.children or ended.task.dependents or ended.failed or decision.restarts)
