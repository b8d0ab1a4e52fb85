"""Findings to compare-and-sets: what a rule says is to be done, done in batches.

A repair runs a step of the normal path again, and its update repeats the condition that the finding was made
on; a record that has moved on since is left alone. So a finding may be as old as it likes. Each repair that
changed something is counted under its rule.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pymongo.errors import ConnectionFailure
from redis.exceptions import RedisError

from recovery import metrics
from recovery.engine import Applied, Applier, Ended, Resources, enqueue, finish_process, register
from recovery.records import ErrorInfo, Process
from recovery.records.ids import new_pass
from recovery.repair.handover import HandOver
from recovery.rules import Finding, Repair, Rule, Surroundings
from recovery.store import Queued

log = logging.getLogger(__name__)

Done = Counter[Rule]
Item = TypeVar("Item")


class Repairer:
    """Repairs findings with the steps of the engine."""

    def __init__(self, resources: Resources, applier: Applier, source: str = "auto") -> None:
        self._resources = resources
        self._applier = applier
        self._source = source
        self.hand_over = HandOver(resources)
        self._actions: dict[Repair, Callable[[Rule, Sequence[Finding], Surroundings], int]] = {
            Repair.REQUEUE: self._requeue,
            Repair.FAIL: self._fail,
            Repair.ENQUEUE_DUE: self._enqueue_due,
            Repair.STAMP: self._stamp,
            Repair.PUSH_AGAIN: self._push_again,
            Repair.WAIT: self._wait,
            Repair.APPLY: self._apply,
            Repair.ENQUEUE_READY: self._enqueue_ready,
            Repair.REGISTER_START: self._register_start,
            Repair.FINISH_PROCESS: self._finish_process,
        }

    def repair(self, findings: Sequence[Finding], around: Surroundings) -> Done:
        """Repair all findings; {rule: repairs that changed something}."""
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        done: Done = Counter()
        for (rule, repair), group in groups.items():
            changed = self._actions[repair](rule, group, around)
            if changed:
                done[rule] += changed
                metrics.REPAIRS.labels(rule.value).inc(changed)
                log.info(
                    "%s: %s, %d of %d (source %s); first %s: %s",
                    rule, repair, changed, len(group), self._source, group[0].record, group[0].evidence,
                )  # fmt: skip
        return done

    def _requeue(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        ids, pass_key = [f.record for f in findings], new_pass()
        requeues = self._resources.store.requeues
        if rule is Rule.WORKER_LOST:
            queued = requeues.lost(ids, _holders(findings), pass_key)
        else:
            queued = requeues.timed_out(ids, pass_key)
        for actor, count in Counter(one.actor for one in queued).items():
            count_timeouts(actor, count)
        return self._handed_over(rule, findings, queued)

    def _enqueue_due(self, rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        queued = self._resources.store.requeues.due([f.record for f in findings], new_pass())
        return self._handed_over(rule, findings, queued)

    def _push_again(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> int:
        times = [f.decision.queued_at for f in findings if f.decision and f.decision.queued_at]
        until = max(times, default=around.now)
        queued = self._resources.store.requeues.unmessaged([f.record for f in findings], until, new_pass())
        return self._handed_over(rule, findings, queued)

    def _handed_over(self, rule: Rule, findings: Sequence[Finding], queued: Sequence[Queued]) -> int:
        self.hand_over(rule, findings, queued)
        return len(queued)

    def _fail(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> int:
        store = self._resources.store
        by_actor: dict[str, list[str]] = defaultdict(list)
        for finding in findings:
            assert finding.decision is not None
            by_actor[finding.decision.actor].append(finding.record)
        holders = _holders(findings) if rule is Rule.WORKER_LOST else None
        failed: list[str] = []
        for actor, ids in by_actor.items():
            error = _timeout_error(rule, actor, around)
            failed_now = store.requeues.fail(ids, error, new_pass(), holders)
            failed += failed_now
            count_timeouts(actor, len(failed_now))
        self._apply_all(failed)
        return len(failed)

    def _stamp(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        ids = [f.record for f in findings]
        return self._resources.store.requeues.stamp(ids) + self._resources.store.processes.stamp(ids)

    def _wait(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        self._resources.store.requeues.wait_longer([f.record for f in findings])
        return 0  # looked at, nothing repaired

    def _apply(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return self._apply_all([f.record for f in findings])

    def _apply_all(self, ids: Sequence[str]) -> int:
        store = self._resources.store
        tasks, decisions = store.tasks.get_many(ids), store.decisions.get_many(ids)
        ended = [
            Ended(task, decision)
            for key in ids
            if (task := tasks.get(key)) and (decision := decisions.get(key)) and decision.outcome
        ]
        changed = _each(ended, lambda one: self._applier.apply([one]) in (Applied.NOW, Applied.RESTORED))
        self._applier.flush()
        return changed

    def _enqueue_ready(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return enqueue(self._resources, [f.record for f in findings])

    def _register_start(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> int:
        processes = self._resources.store.processes.get_many(f.record for f in findings)
        return _each(processes.values(), lambda process: register(self._resources, process, around.now) > 0)

    def _finish_process(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        processes = self._resources.store.processes.get_many(f.record for f in findings)
        over: list[str] = []

        def finish(process: Process) -> bool:
            ended = finish_process(self._resources, process.id, process.epoch)
            if ended is not None:
                over.append(process.id)
            return bool(ended)

        changed = _each(processes.values(), finish)
        self._resources.store.graphs.rest(over)
        return changed


def _each(items: Iterable[Item], step: Callable[[Item], bool]) -> int:
    """How many of these the step changed. One whose records are damaged does not hold up the others."""
    changed = 0
    for item in items:
        try:
            changed += step(item)
        except Exception as error:
            if isinstance(error, ConnectionFailure | RedisError) or getattr(error, "timeout", False):
                raise  # the server's fault, not the record's
            log.exception("could not repair %.300r; others go on", item)
    return changed


def count_timeouts(actor: str, count: int) -> None:
    """Count attempts that were lost: in all, and of their actor."""
    metrics.WORK_TIMEOUTS.inc(count)
    metrics.ACTOR_WORK_TIMEOUTS.labels(actor).inc(count)


def _holders(findings: Sequence[Finding]) -> list[str]:
    return sorted({f.decision.worker for f in findings if f.decision is not None and f.decision.worker})


def _timeout_error(rule: Rule, actor: str, around: Surroundings) -> ErrorInfo:
    preferences = around.actor(actor)
    if preferences.restart_after_work_timeout:
        why = f"lost {preferences.max_work_timeouts} attempts, which is its max_work_timeouts"
    elif rule is Rule.WORKER_LOST:
        why = "lost its worker, and restart_after_work_timeout is off"
    else:
        why = f"brought no result within {preferences.worker_timeout:g} s, and restart_after_work_timeout is off"
    return ErrorInfo(kind="WorkTimeout", message=f"{actor} {why}", actor=actor)
