"""Runs one batch: tasks that a slot claimed together run, end together, and are followed by the tasks that became
ready.

    run, run, run … → finish all → claim unlocked tasks → apply all, and claim ready tasks → run …

A single task is a batch of one. Tasks that were claimed on the spot form the next round. So chains of tasks run side by
side, one step of each per round.
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
"""Maximum characters of a value, and of the arguments of children, that are written with others. 64 of them stay far
below MongoDB's 16 MB."""
FEW = 100
"""Maximum number of children that are written with others."""


class Batch:
    """The tasks that one slot claimed at once."""

    def __init__(self, place: Place, outbox: Outbox, pace: Pace, watch: Watch) -> None:
        self._place, self._outbox, self._pace, self._watch = place, outbox, pace, watch
        self._store = place.resources.store
        self.results: dict[str, Result] = {}
        """Result by decision id. Tasks that were given back are absent."""
        self._held: dict[str, Decision] = {}
        """Decisions that must be given back if they can't run or their results can't be written."""
        self._took: dict[str, float] = {}
        self._span = tracing.NOTHING

    def run(self, claimed: Sequence[Decision], until: float) -> None:
        """Run the claimed tasks, and the tasks that become ready through them, until this monotonic time.

        Ready tasks that remain then are enqueued. Errors of servers are raised, after the tasks that have not begun
        were given back.
        """
        round_ = [ClaimedTask(decision) for decision in claimed]
        while round_:
            first = round_[0].decision
            self._held = {task.decision.id: task.decision for task in round_}
            # While tracing is on, each batch is a single task, because its span records how the attempt ended.
            self._span = tracing.attempt(first) if len(round_) == 1 else tracing.NOTHING
            with self._span, attempting(first) if len(round_) == 1 else nullcontext():
                round_ = self._run_round(round_, until)

    def _run_round(self, round_: Sequence[ClaimedTask], until: float) -> list[ClaimedTask]:
        try:
            hand = Hand(self._with_outcomes(round_))
        except Exception as error:
            self._give_back([task.decision for task in round_], error)
            raise
        alone = len(round_) == 1
        try:
            with nullcontext() if alone else self._watch.over(hand, self._relieve):
                while (claimed := hand.next(lambda actor: not self._place.is_blocked(actor))) is not None:
                    self._run_one(claimed, hand, alone=alone)
        except Exception:  # a server failed: write the finished tasks, so that they need not run again
            self._put_down(hand, may_take=False)
            raise
        started = time.perf_counter()
        taken = self._put_down(hand, may_take=time.monotonic() < until)
        if alone:
            self._pace.note_around(time.perf_counter() - started)
        return taken

    def _with_outcomes(self, round_: Sequence[ClaimedTask]) -> list[ClaimedTask]:
        """Return the tasks with the outcomes of their dependencies, read with majority for all at once.

        Missing or large outcomes are left out: the task reads them itself. Errors of servers are raised.
        """
        missing: dict[str, list[str]] = {}
        for claimed in round_:
            task = claimed.decision.task()
            if task is not None and (names := [name for name in task.deps if name not in claimed.outcomes]):
                missing[claimed.decision.id] = [record_id(task.process_id, name) for name in names]
        if len(missing) < 2:
            return list(round_)
        try:
            outcomes = self._store.decisions.known_outcomes(
                list({key: None for keys in missing.values() for key in keys})
            )
        except Exception as error:
            if is_of_servers(error):
                raise
            log.debug("could not read the dependencies of %d tasks together (%s)", len(missing), in_a_line(error))
            return list(round_)
        return [claimed.knowing(outcomes, missing.get(claimed.decision.id, ())) for claimed in round_]

    def _run_one(self, claimed: ClaimedTask, hand: Hand, *, alone: bool) -> None:
        """Run one task. If another program damaged a record that it needs, log this, and continue with the others."""
        decision = claimed.decision
        try:
            with attempting(decision):
                tried = self._try(claimed)
                if alone or is_plain(tried):
                    hand.keep(claimed, tried)
                else:
                    self._write([(claimed, tried)], may_take=False, alone=True)
            self._place.host.was_done()
        except Exception as error:
            if isinstance(error, StoreError):  # otherwise its deadline stands
                self._give_back([decision], error)
            if is_of_servers(error):
                raise
            if not isinstance(error, StoreError):
                self._place.was_not_done(decision, error)
            tell(decision.id, error)

    def _try(self, claimed: ClaimedTask) -> Tried:
        decision, started = claimed.decision, time.perf_counter()
        actor = self._place.actor(decision.actor)
        tried = self._place.trying.run(actor, claimed, self._span, lambda: self._let_go(decision))
        seconds = self._took[decision.id] = time.perf_counter() - started
        self._pace.note(decision.actor, seconds)
        if not (is_plain(tried) and all(map(self._pace.is_quick, _made_ready(tried)))):
            self._pace.note_unfit(decision.actor)
        return tried

    def _let_go(self, decision: Decision) -> None:
        self._held.pop(decision.id, None)

    def _relieve(self, hand: Hand, slow: Decision) -> None:
        """Write and give back the rest of the batch behind a slow task. Called in another thread than the task's."""
        self._put_down(hand, may_take=False)
        preferences = self._place.actor(slow.actor).preferences
        # The slow task's timeout began at its claim. Earlier tasks of the batch have used some of it.
        self._store.decisions.extend(slow.id, str(slow.pass_key), preferences.worker_timeout, preferences.task_limit)

    def _put_down(self, hand: Hand, *, may_take: bool) -> list[ClaimedTask]:
        """Give back the tasks that have not begun, and write the results of finished tasks. Return the tasks claimed
        for the next round."""
        done, unrun = hand.empty()
        try:
            self._give_back(unrun)
        finally:
            taken = self._write(done, may_take=may_take, alone=len(done) == 1)
        return taken

    def _write(self, done: Sequence[tuple[ClaimedTask, Tried]], *, may_take: bool, alone: bool) -> list[ClaimedTask]:
        """Finish the tasks that ended, and have them applied. Return the tasks that became ready and were claimed
        here."""
        accepted = self._finish([tried.ended for _, tried in done if tried.ended is not None])
        self._close(done, accepted)
        accepted_tasks = {claimed.decision.id: claimed for claimed, _ in done if claimed.decision.id in accepted}
        ended = [tried.ended for claimed, tried in done if tried.ended is not None and claimed.decision.id in accepted]
        if not ended:
            return []
        taking = Taking(self._place, accepted_tasks, self._room_alone if alone else self._room)
        try:
            try:
                ended = taking.unlocked(ended) if may_take else ended
            except StoreError:
                self._outbox.put(ended)
                raise
            # The slot need not wait for the apply if no task can become ready.
            waits = may_take and (not alone or any(map(_may_make_ready, ended)))
            self._outbox.put(ended, taking.ready if waits else None)
        except StoreError as error:
            self._place.give_back([claimed.decision for claimed in taking.taken], error)
            raise
        return taking.taken

    def _room(self, name: str) -> int:
        """Return how many of an actor's tasks may be claimed after a batch."""
        served = self._place.may_take(name) and self._place.actor(name).preferences.restarts_lost_attempts
        return self._pace.fits(name) if served else 0

    def _room_alone(self, name: str) -> int:
        """Return how many of an actor's tasks may be claimed after a single task."""
        return 1 if self._place.may_take(name) else 0

    def _finish(self, ended: Sequence[Ended]) -> set[str]:
        by_actor: dict[str, list[Ended]] = defaultdict(list)
        for end in ended:
            by_actor[end.decision.actor].append(end)
        accepted: set[str] = set()
        for name, ends in by_actor.items():
            preferences = self._place.actor(name).preferences
            finish = partial(
                self._store.decisions.finish,
                [end.decision for end in ends],
                accept_first=preferences.accept_first,
                worker=self._place.holder,
                apply_timeout=self._place.resources.settings.apply_timeout,
            )
            try:
                # The work is done. An outage shorter than the task's timeout must not throw it away.
                accepted |= through_outage(
                    self._place.resources, finish, preferences.worker_timeout, ends[0].decision.id
                )
            except StoreError as error:
                self._give_back([end.decision for end in ended if end.decision.id not in accepted], error)
                raise
        if stale := [end.decision for end in ended if end.decision.id not in accepted]:
            stale_results(stale)
            rejected = {
                decision.id: Conditions.of_finish(decision, self._is_taken_late(decision)) for decision in stale
            }
            note_rejected(self._place.resources, Step.FINISH, rejected)
        return accepted

    def _is_taken_late(self, decision: Decision) -> bool:
        """Return whether a result is accepted although its attempt has lost the claim."""
        return self._place.actor(decision.actor).preferences.accept_first and not decision.failed

    def _close(self, done: Sequence[tuple[ClaimedTask, Tried]], accepted: set[str]) -> None:
        """Count the results of attempts, and report them to their spans."""
        counts = Counter[tuple[str, Result]]()
        for claimed, tried in done:
            decision, result = claimed.decision, tried.result
            if tried.ended is not None and decision.id not in accepted:
                result = Result.STALE_RESULT
            self.results[decision.id] = result
            counts[decision.actor, result] += 1
            if tried.damaged is not None and result is Result.FAILED:  # otherwise the attempt no longer has the task
                log.error("%s %s: %s", decision.actor, decision.id, tried.damaged)
            self._span.end_as(result.value, tried.kind)
            took = self._took.pop(decision.id, 0.0)
            if log.isEnabledFor(logging.DEBUG):
                message = "%s %s attempt %d: %s in %.3f s"
                with attempting(decision):
                    log.debug(message, decision.actor, decision.id, decision.attempts, result.value, took)
        for (actor, result), count in counts.items():
            metrics.ATTEMPTS.labels(actor, result.value).inc(count)

    def _give_back(self, decisions: Sequence[Decision], error: Exception | None = None) -> None:
        """Requeue decisions that were claimed and do not run, or whose results could not be written."""
        self._place.give_back(
            [decision for decision in decisions if self._held.pop(decision.id, None) is not None], error
        )


def is_plain(tried: Tried) -> bool:
    """Return whether an attempt's result may be written with others: it has a value, and the value and the children are
    small."""
    if tried.ended is None or tried.result is not Result.FINISHED:
        return False
    outcome, children = tried.ended.decision.outcome, tried.ended.decision.children
    if outcome is None or len(outcome.value or "") > SMALL or len(children) > FEW:
        return False
    return sum(len(child.args) for child in children) <= SMALL


def _made_ready(tried: Tried) -> Iterator[str]:
    """Yield the actors of tasks that became ready through this one.

    A task that makes a slow task ready runs alone rather than in a batch. So the slot runs the slow task next, without
    a message, and other slots do the same for others at the same time.
    """
    if tried.ended is not None:
        children = tried.ended.decision.children
        yield from (child.actor for child in children if not (child.deps or child.eta or child.delay))
        yield from tried.ended.task.unlocks.values() if not children else ()


def _may_make_ready(ended: Ended) -> bool:
    decision = ended.decision
    if ended.successor is not None:
        return False  # the successor is already claimed
    return bool(decision.children or ended.task.dependents or ended.failed or decision.restarts)
