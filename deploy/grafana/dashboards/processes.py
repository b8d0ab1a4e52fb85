"""The dashboard Processes: how many start and end, with which outcome, how long they take, and what they wait for."""

from __future__ import annotations

from deploy.grafana.dashboards.model import (
    ACTOR,
    TYPE,
    Board,
    Look,
    Panel,
    Query,
    Section,
    Unit,
    increase,
    largest,
    orange,
    quantile,
    rate,
    top,
)

_ACTOR, _TYPE = 'actor=~"$actor"', 'type=~"$type"'
_RECOVERY, _CLUSTER = "recovery-recovery", "recovery-cluster"


def _now(state: str) -> str:
    return largest("recovery_processes", "type", f'{_TYPE}, state="{state}"')


def _ended(state: str) -> str:
    return f'{_TYPE}, state="{state}"'


NOW = Section(
    "Now",
    (
        Panel(
            "Running",
            "Processes that run now.",
            Unit.NUMBER,
            (Query(f"sum({_now('running')})"),),
            to=_CLUSTER,
            look=Look.STAT,
            width=6,
            below="blue",
        ),
        Panel(
            "Broken",
            "Processes that are broken now: they can't go on until an operator restarts or aborts them. "
            "`recovery broken list` shows what they failed with.",
            Unit.NUMBER,
            (Query(f"sum({_now('broken')})"),),
            to=_RECOVERY,
            look=Look.STAT,
            width=6,
            levels=(orange(1),),
            runbook="RecoveryProcessesBroken",
        ),
        Panel(
            "Started",
            "Processes that were started in the time range.",
            Unit.NUMBER,
            (Query(increase("recovery_processes_started_total", where=_TYPE)),),
            to=_CLUSTER,
            look=Look.STAT,
            width=6,
            below="blue",
        ),
        Panel(
            "Finished",
            "Processes that finished in the time range.",
            Unit.NUMBER,
            (Query(increase("recovery_processes_ended_total", where=_ended("finished"))),),
            to=_CLUSTER,
            look=Look.STAT,
            width=6,
            below="blue",
        ),
        Panel(
            "Running now, by type",
            "The ten types with the most.",
            Unit.NUMBER,
            (Query(top(_now("running")), "{{type}}"),),
            to=_CLUSTER,
            width=12,
            look=Look.STACK,
        ),
        Panel(
            "Broken now, by type",
            "The ten types with the most. Only a restart or an abort ends it.",
            Unit.NUMBER,
            (Query(top(_now("broken")), "{{type}}"),),
            to=_RECOVERY,
            width=12,
            look=Look.STACK,
            runbook="RecoveryProcessesBroken",
        ),
    ),
)

FLOW = Section(
    "Started and ended",
    (
        Panel(
            "Started, by type",
            "Counted where `start` is called: in workers whose actors or schedules start processes, and in "
            "applications that are scraped. The ten types with the most.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_processes_started_total", "type", _TYPE)), "{{type}}"),),
            to=_CLUSTER,
        ),
        Panel(
            "Finished, by type",
            "The ten types with the most.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_processes_ended_total", "type", _ended("finished"))), "{{type}}"),),
            to=_CLUSTER,
        ),
        Panel(
            "Broken or aborted, by type",
            "Processes that ended without a result. The ten most frequent.",
            Unit.PER_SECOND,
            (
                Query(
                    top(rate("recovery_processes_ended_total", "type, state", f'{_TYPE}, state!="finished"')),
                    "{{type}} {{state}}",
                ),
            ),
            to=_RECOVERY,
            nothing="none",
            runbook="RecoveryProcessesBroken",
        ),
        Panel(
            "Duration, by type",
            "From the start of a process to its end, of those that finished: half of them took no longer. The ten "
            "types that take longest.",
            Unit.SECONDS,
            (Query(top(quantile(0.5, "recovery_process_seconds", "type", _ended("finished"))), "{{type}}"),),
            to=_CLUSTER,
        ),
        Panel(
            "Longest durations, by type",
            "99 % of the processes that finished took no longer. The ten types that take longest.",
            Unit.SECONDS,
            (Query(top(quantile(0.99, "recovery_process_seconds", "type", _ended("finished"))), "{{type}}"),),
            to=_CLUSTER,
        ),
        Panel(
            "Past their process_timeout, by type",
            "Processes that ran longer than their type's `process_timeout`, each counted once.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_process_timeouts_total", "type", _TYPE)), "{{type}}"),),
            to=_RECOVERY,
            nothing="none",
        ),
    ),
)

TASKS = Section(
    "Tasks",
    (
        Panel(
            "Attempts, by outcome",
            "Attempts that ended, and how. An attempt whose worker was killed is not among them.",
            Unit.PER_SECOND,
            (Query(rate("recovery_attempts_total", "outcome", _ACTOR), "{{outcome}}"),),
            to=_RECOVERY,
            look=Look.STACK,
        ),
        Panel(
            "Attempts, by actor",
            "The ten actors with the most.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_attempts_total", "actor", _ACTOR)), "{{actor}}"),),
            to=_RECOVERY,
            look=Look.STACK,
        ),
        Panel(
            "Wait in the queue, by actor",
            "From when a task was queued to when a worker claimed it: 99 % waited no longer. The ten actors whose "
            "tasks wait longest.",
            Unit.SECONDS,
            (Query(top(quantile(0.99, "recovery_queue_seconds", "actor", _ACTOR)), "{{actor}}"),),
            to=_CLUSTER,
            runbook="RecoveryQueueWaits",
        ),
        Panel(
            "Duration of attempts, by actor",
            "How long the actors' functions took: half of them no longer. The ten that take longest.",
            Unit.SECONDS,
            (Query(top(quantile(0.5, "recovery_attempt_seconds", "actor", _ACTOR)), "{{actor}}"),),
            to=_RECOVERY,
        ),
        Panel(
            "Longest attempts, by actor",
            "99 % took no longer. Compare with the actor's `worker_timeout`: `recovery actor show`.",
            Unit.SECONDS,
            (Query(top(quantile(0.99, "recovery_attempt_seconds", "actor", _ACTOR)), "{{actor}}"),),
            to=_RECOVERY,
            runbook="RecoveryAttemptsLost",
        ),
        Panel(
            "Failed attempts, by actor",
            "Attempts that failed: retried ones, and ones that ended their task. The ten most frequent.",
            Unit.PER_SECOND,
            (
                Query(
                    top(rate("recovery_attempts_total", "actor, outcome", f'{_ACTOR}, outcome=~"failed|retried"')),
                    "{{actor}} {{outcome}}",
                ),
            ),
            to=_RECOVERY,
            nothing="none",
            runbook="RecoveryProcessesBroken",
        ),
    ),
)

BOARD = Board(
    "recovery-processes",
    "Recovery: Processes",
    "Processes by type: started, running and ended, with outcomes and durations; and attempts of tasks by actor.",
    (TYPE, ACTOR),
    (NOW, FLOW, TASKS),
)
