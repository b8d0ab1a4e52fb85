"""Repairs of single tasks: requeue, end with an error, enqueue, wait. All in batches."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from recovery import metrics, tracing
from recovery.engine import Resources
from recovery.engine.end.fencing import withdraw_unwanted
from recovery.limits import LONGEST
from recovery.records import Decision, ErrorInfo
from recovery.records.ids import new_pass
from recovery.repair.changed import Changed, of_records
from recovery.repair.ended_tasks import Applying
from recovery.repair.handover import HandOver
from recovery.repair.requeue_pace import Later, Pace
from recovery.retry.codes import WORK_TIMEOUT
from recovery.retry.reasons import WORKER_LOST
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import LOSSES_WITHOUT_DELAY

log = logging.getLogger(__name__)


class TaskRepairs:
    """What can be done about one decision, without looking at its process."""

    def __init__(self, resources: Resources, applying: Applying, hand_over: HandOver, pace: Pace | None) -> None:
        self._resources, self._store = resources, resources.store
        self._applying = applying
        self._hand_over = hand_over
        self._pace = pace or Pace(resources.settings.scan_interval)
        self.postponed: list[Later] = []
        """What the pace has postponed, till somebody takes it from here."""
        self.actions = {
            Repair.REQUEUE: self._requeue,
            Repair.FAIL: self._fail,
            Repair.ENQUEUE_DUE: self._enqueue_due,
            Repair.REQUEUE_MESSAGE: self._requeue_message,
            Repair.WAIT: self._wait,
        }

    def _requeue(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        if rule is not Rule.WORKER_LOST:  # that many at most as its workers had slots
            findings = self._in_pace(findings, around)
        ids, pass_key = [f.record for f in findings], new_pass()
        if rule is Rule.WORKER_LOST:
            queued = self._store.requeues.requeue_worker_lost(ids, _holders(findings), pass_key)
        else:
            queued = self._store.requeues.timed_out(ids, pass_key, _known(findings))
        in_batch = {f.record for f in findings if f.decision is not None and f.decision.in_batch}
        for actor, count in Counter(one.actor for one in queued if one.id not in in_batch).items():
            count_timeouts(actor, count)
        self._hand_over(rule, findings, queued)
        return of_records(one.id for one in queued)

    def _enqueue_due(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        early = {f.record for f in findings if f.decision is not None and is_early(f.decision, around.now)}
        if early:
            self._store.requeues.await_eta(sorted(early))
            findings = [finding for finding in findings if finding.record not in early]
        findings = self._in_pace(findings, around)
        queued = self._store.requeues.enqueue_due([f.record for f in findings], new_pass(), _known(findings))
        self._hand_over(rule, findings, queued)
        return of_records(one.id for one in queued)

    def _requeue_message(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        findings = self._in_pace(self._of_someone(findings), around)
        times = [f.decision.queued_at for f in findings if f.decision and f.decision.queued_at]
        until = max(times, default=None)
        ids = [finding.record for finding in findings]
        queued = self._store.requeues.requeue_message_lost(ids, until, new_pass(), _known(findings))
        self._hand_over(rule, findings, queued)
        self._tell_of_losses(findings)
        return of_records(one.id for one in queued)

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
            self._store.requeues.postpone(rest.ids, rest.least, rest.most)
        self.postponed += later
        return now

    def _wait(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        waiting: dict[bool, list[str]] = defaultdict(list)
        for finding in findings:
            actor = around.actor(finding.decision.actor) if finding.decision is not None else None
            waiting[bool(actor and actor.requeue_rate)].append(finding.record)
        for paced, ids in waiting.items():
            self._store.requeues.postpone_waiting(ids, paced=paced)
        return Changed()  # looked at, nothing repaired

    def _fail(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        alike: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for finding in findings:
            assert finding.decision is not None
            alike[finding.decision.actor, finding.decision.last_loss].append(finding.record)
        holders = _holders(findings) if rule is Rule.WORKER_LOST else None
        failed: list[str] = []
        for (actor, last), ids in alike.items():
            error = _timeout_error(rule, actor, last, around)
            failed_now = self._store.requeues.fail(ids, error, new_pass(), holders)
            failed += failed_now
            count_timeouts(actor, len(failed_now))
        over = set(failed)
        lost = (f.decision for f in findings if f.decision is not None and f.record in over)
        tracing.repaired(rule.value, tracing.repairing(lost, self._store.decisions.claims), "ended")
        self._applying.apply(failed)
        return of_records(failed)


def is_early(decision: Decision, now: datetime) -> bool:
    """Whether the time of a delayed task is still to come, though its deadline is past; see `Requeues.await_eta`."""
    return decision.eta is not None and now < decision.eta < now + timedelta(seconds=LONGEST)


def count_timeouts(actor: str, count: int) -> None:
    """Count attempts that were lost: in all, and of their actor."""
    metrics.WORK_TIMEOUTS.inc(count)
    metrics.ACTOR_WORK_TIMEOUTS.labels(actor).inc(count)


def _known(findings: Sequence[Finding]) -> dict[str, Decision]:
    return {f.record: f.decision for f in findings if f.decision is not None}


def _holders(findings: Sequence[Finding]) -> list[str]:
    return sorted({f.decision.worker for f in findings if f.decision is not None and f.decision.worker})


def _timeout_error(rule: Rule, actor: str, last: str | None, around: Surroundings) -> ErrorInfo:
    """Why a task ends without a result; `last` says how the process of its last attempt had ended, if that is known."""
    preferences = around.actor(actor)
    off = (
        "it is not idempotent"
        if preferences.restart_after_work_timeout is None
        else "restart_after_work_timeout is off"
    )
    if preferences.restarts_lost_attempts:
        why = f"lost {preferences.max_work_timeouts} attempts (max_work_timeouts)"
        why += f"; the last one's process {last}" if last else ""
    elif rule is Rule.WORKER_LOST or last:
        lost = f"'s process {last}" if last else " lost its worker"
        return _work_timeout(f"{actor}{lost}, and {off}", actor)
    else:
        why = f"brought no result within {preferences.worker_timeout:g} s, and {off}"
    return _work_timeout(f"{actor} {why}", actor)


def _work_timeout(message: str, actor: str) -> ErrorInfo:
    return ErrorInfo(
        kind="WorkTimeout", message=message, code=WORK_TIMEOUT.number, reason=WORKER_LOST.name, actor=actor
    )
