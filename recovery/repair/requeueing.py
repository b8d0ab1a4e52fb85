"""Requeues: of tasks whose attempt or message is lost, and of delayed tasks that are due.

One update of many queues the tasks again (`store.lifecycle.requeues`). Then they are handed over to workers: the
database writes the new deadlines of their graphs while their messages are pushed, and a scanner that has more pages
goes on with the next one meanwhile (`ahead`). If that is cut off, the decisions are queued and MESSAGE_LOST finds them.

After an outage, when everything is overdue at once, tasks are requeued as fast as the database takes it: a requeue
moves at most one message for each task, and what waits in a queue is not queued twice, so a storm makes no queue longer
than its tasks. If that is too fast for what an actor calls, its `requeue_rate` spreads the tasks (`RequeuePace`): the
rest gets new deadlines, in the order of need, as far off as the rate asks for, each at random in its place. Such a
deadline is marked (`Decision.paced_to`), so that nobody brings it forward, and nobody counts it again: what was
postponed comes before what was not. Each process that scans keeps the rate for itself, so several at once may be as
many times as fast.

Metrics: recovery_requeues by rule and actor, recovery_requeue_lag_seconds.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery import metrics, tracing
from recovery.engine import Resources, push
from recovery.engine.end.fencing import withdraw_unwanted
from recovery.limits import LONGEST
from recovery.metrics import counting
from recovery.records import Decision
from recovery.records.ids import new_pass, split_record_id
from recovery.repair.changed import Changed, of_records
from recovery.repair.ended_tasks import count_timeouts, holders_of
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import LOSSES_WITHOUT_DELAY, Queued

log = logging.getLogger(__name__)

OUTRUN = 10
"""Times as many tasks as were requeued that were to be, from which on others are at work on them. Of several that are
at work on the same tasks one is mostly first at nearly all; if each of a few were first at some, none would end."""


@dataclass(slots=True)
class _Budget:
    """Of one actor: what may be handed over now, what has been postponed, and what of that once more."""

    allowed: float
    at: float
    postponed: float = 0.0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Later:
    """Records of one actor's tasks to be looked at again between so many seconds from now and so many."""

    actor: str
    ids: list[str]
    least: float
    most: float


class RequeuePace:
    """Splits a page of findings into what is done now and what is postponed. Not safe for threads."""

    def __init__(self, interval: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`interval` is that of the scans, in seconds: what it brings may be used at once."""
        self._interval, self._clock = max(1.0, interval), clock
        self._budgets: dict[str, _Budget] = {}

    def split(self, findings: Sequence[Finding], around: Surroundings) -> tuple[list[Finding], list[Later]]:
        """What may be handed over now; and the rest, by actor."""
        by_actor: dict[str, list[Finding]] = defaultdict(list)
        now: list[Finding] = []
        for finding in findings:
            assert finding.decision is not None
            if around.actor(finding.decision.actor).requeue_rate:
                by_actor[finding.decision.actor].append(finding)
            else:
                now.append(finding)
        later = []
        for actor, wanted in by_actor.items():
            rate = around.actor(actor).requeue_rate
            budget = self._refilled(actor, rate)
            wanted.sort(key=_is_fresh)  # of each kind those first that were
            count = min(len(wanted), int(budget.allowed))
            budget.allowed -= count
            now += wanted[:count]
            again = [f.record for f in wanted[count:] if not _is_fresh(f)]
            rest = [f.record for f in wanted[count:] if _is_fresh(f)]
            if again:
                least, budget.again = budget.again / rate, budget.again + len(again)
                later.append(Later(actor, again, least, budget.again / rate))
            if rest:
                least, budget.postponed = budget.postponed / rate, budget.postponed + len(rest)
                later.append(Later(actor, rest, least, budget.postponed / rate))
        return now, later

    def _refilled(self, actor: str, rate: float) -> _Budget:
        """What an interval brings is for use within it, and is not saved up, but for one. What was postponed is due."""
        now, most = self._clock(), max(rate * self._interval, 1.0)
        budget = self._budgets.setdefault(actor, _Budget(most, now))
        earned = (now - budget.at) * rate
        budget.allowed = min(most, budget.allowed + earned)
        budget.postponed = max(0.0, budget.postponed - earned)
        budget.again = max(0.0, budget.again - earned)
        budget.at = now
        return budget


class RequeueRepairs:
    """What can be done about a task that waits, or whose attempt was lost, without looking at its process."""

    def __init__(self, resources: Resources, pace: RequeuePace | None) -> None:
        self._resources, self._store = resources, resources.store
        self._pace = pace or RequeuePace(resources.settings.scan_interval)
        self._beside: ThreadPoolExecutor | None = None
        self._under_way: list[Future[None]] = []
        self.begin()
        self.actions = {
            Repair.REQUEUE: self._requeue,
            Repair.ENQUEUE_DUE: self._enqueue_due,
            Repair.REQUEUE_MESSAGE: self._requeue_message,
            Repair.WAIT: self._wait,
        }

    def begin(self) -> None:
        """Forget what was requeued, missed and postponed before."""
        self.postponed: list[Later] = []
        """Tasks that the pace has postponed."""
        self._wanted = self._queued = 0

    @property
    def is_outrun(self) -> bool:
        """Whether most tasks that were to be requeued had changed: others are at work on the same ones."""
        return self._wanted > OUTRUN * self._queued

    def _requeue(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        if rule is not Rule.WORKER_LOST:  # that many at most as its workers had slots
            findings = self._in_pace(findings, around)
        ids, pass_key = [f.record for f in findings], new_pass()
        if rule is Rule.WORKER_LOST:
            queued = self._store.requeues.requeue_worker_lost(ids, holders_of(findings), pass_key)
        else:
            queued = self._store.requeues.timed_out(ids, pass_key, _known(findings))
        in_batch = {f.record for f in findings if f.decision is not None and f.decision.in_batch}
        for actor, count in Counter(one.actor for one in queued if one.id not in in_batch).items():
            count_timeouts(actor, count)
        return self._hand_over(rule, findings, queued)

    def _enqueue_due(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        early = {f.record for f in findings if f.decision is not None and is_early(f.decision, around.now)}
        if early:
            self._store.task_deadlines.await_eta(sorted(early))
            findings = [finding for finding in findings if finding.record not in early]
        findings = self._in_pace(findings, around)
        queued = self._store.requeues.enqueue_due([f.record for f in findings], new_pass(), _known(findings))
        return self._hand_over(rule, findings, queued)

    def _requeue_message(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        findings = self._in_pace(self._of_someone(findings), around)
        times = [f.decision.queued_at for f in findings if f.decision and f.decision.queued_at]
        until = max(times, default=None)
        ids = [finding.record for finding in findings]
        queued = self._store.requeues.requeue_message_lost(ids, until, new_pass(), _known(findings))
        changed = self._hand_over(rule, findings, queued)
        self._tell_of_losses(findings)
        return changed

    def _of_someone(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Those whose processes are there. Whoever made the others was cut off before it looked; they are removed."""
        fresh = {f.record: f.decision.epoch for f in findings if f.decision is not None and f.decision.fresh}
        if not fresh:
            return findings
        unwanted = withdraw_unwanted(self._resources, fresh)
        return [finding for finding in findings if finding.record not in unwanted]

    def _tell_of_losses(self, findings: Sequence[Finding]) -> None:
        """One that is lost again and again is no outage: something else takes it, or it ends whoever takes it."""
        often = [f for f in findings if f.decision is not None and (f.decision.losses or 0) >= LOSSES_WITHOUT_DELAY]
        if often:
            log.warning(
                "messages of %d tasks were lost %d times or more, first %s: does another program consume the queue "
                "%s, or does Redis evict?",
                len(often), LOSSES_WITHOUT_DELAY + 1, often[0].record, often[0].decision and often[0].decision.actor,
            )  # fmt: skip

    def _in_pace(self, findings: Sequence[Finding], around: Surroundings) -> Sequence[Finding]:
        """Those that their actors' pace allows now; the others are postponed."""
        now, later = self._pace.split(findings, around)
        for rest in later:
            self._store.task_deadlines.postpone(rest.ids, rest.least, rest.most)
        self.postponed += later
        return now

    def _wait(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        waiting: dict[bool, list[str]] = defaultdict(list)
        for finding in findings:
            actor = around.actor(finding.decision.actor) if finding.decision is not None else None
            waiting[bool(actor and actor.requeue_rate)].append(finding.record)
        for paced, ids in waiting.items():
            self._store.task_deadlines.postpone_waiting(ids, paced=paced)
        return Changed()  # looked at, nothing repaired

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Within, a batch is handed over while the caller goes on; by the end all are. Its errors are raised by the
        next batch, or at the end."""
        with ThreadPoolExecutor(max_workers=2) as self._beside:
            try:
                yield
                self._wait_for(self._under_way)
            finally:
                self._beside, self._under_way = None, []

    def _hand_over(self, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]) -> Changed:
        """Hand over what was queued because of `findings`; which tasks these are."""
        self._wanted += len(findings)
        self._queued += len(queued)
        if queued and self._beside is not None:
            before, self._under_way = self._under_way, self._begin(self._beside, rule, findings, queued)
            self._wait_for(before)  # one batch at a time: whoever is faster waits
        elif queued:
            with ThreadPoolExecutor(max_workers=2) as beside:
                self._wait_for(self._begin(beside, rule, findings, queued))
        return of_records(one.id for one in queued)

    def _begin(
        self, beside: ThreadPoolExecutor, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]
    ) -> list[Future[None]]:
        return [beside.submit(self._touch, queued), beside.submit(self._push, rule, findings, queued)]

    def _wait_for(self, under_way: Sequence[Future[None]]) -> None:
        for one in under_way:
            one.result()

    def _touch(self, queued: Sequence[Queued]) -> None:
        self._store.graphs.touch({split_record_id(one.id)[0] for one in queued})

    def _push(self, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]) -> None:
        found = _known(findings)
        repairing = tracing.repairing(
            (found[one.id] for one in queued if one.id in found), self._store.decisions.claims
        )
        push(self._resources, queued)
        counting.requeued(rule.value, [one.actor for one in queued])
        tracing.repaired(rule.value, repairing)
        _observe_lag(found, queued)


def is_early(decision: Decision, now: datetime) -> bool:
    """Return whether the time of a delayed task is still to come, though its deadline is past: the deadline was for a
    task_timeout that holds no more. See `TaskDeadlines.await_eta`."""
    return decision.eta is not None and now < decision.eta < now + timedelta(seconds=LONGEST)


def _is_fresh(finding: Finding) -> bool:
    """Whether it was not postponed before: its deadline is none that a pace has set."""
    return finding.decision is None or not finding.decision.is_paced


def _known(findings: Sequence[Finding]) -> dict[str, Decision]:
    return {f.record: f.decision for f in findings if f.decision is not None}


def _observe_lag(found: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
    lags = [
        max(0.0, (one.queued_at - deadline).total_seconds())
        for one in queued
        if (decision := found.get(one.id)) is not None and (deadline := decision.recovery_time) is not None
    ]
    counting.observe_all(metrics.LAG, lags)
