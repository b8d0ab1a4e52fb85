"""The dashboard Operations: operators' work on many processes at once, including sweeps."""

from __future__ import annotations

from deploy.grafana.dashboards.model import (
    KIND,
    Board,
    Look,
    Panel,
    Query,
    Section,
    Unit,
    increase,
    largest,
    orange,
    rate,
    top,
)

_KIND = 'kind=~"$kind"'
_RECOVERY, _PROCESSES = "recovery-recovery", "recovery-processes"
_DONE = largest("recovery_operation_done", "operation, kind", _KIND)
_SHARE = largest("recovery_operation_share", "operation, kind", _KIND)
_FOUND = largest("recovery_operation_found", "operation, kind", _KIND)
_NAMED = "{{operation}} {{kind}}"

OPEN = Section(
    "Open operations",
    (
        Panel(
            "Open",
            "Operations that have not ended, in any state. `recovery operation list` lists them.",
            Unit.NUMBER,
            (Query(f"sum({largest('recovery_operations_open', 'kind, state', _KIND)}) or vector(0)"),),
            to=_RECOVERY,
            look=Look.STAT,
            width=6,
            below="blue",
        ),
        Panel(
            "Wait for an operator",
            "Operations whose plan is complete, or which are paused. They continue only when an operator applies or "
            "resumes them.",
            Unit.NUMBER,
            (
                Query(
                    "sum(max by (kind, state) (recovery_operations_open"
                    f'{{{_KIND}, state=~"planned|paused"}})) or vector(0)'
                ),
            ),
            to=_RECOVERY,
            look=Look.STAT,
            width=6,
            levels=(orange(1),),
            runbook="RecoveryOperationStands",
        ),
        Panel(
            "By kind and state",
            "Operations that have not ended.",
            Unit.NUMBER,
            (Query(largest("recovery_operations_open", "kind, state", _KIND), "{{kind}} {{state}}"),),
            to=_RECOVERY,
            look=Look.STACK,
            width=12,
            nothing="none",
        ),
    ),
)

PROGRESS = Section(
    "Progress",
    (
        Panel(
            "Share that is done",
            "The fraction of its phase that each operation has done: of the processes to check while it is planned, of "
            "the findings while it is applied. "
            "`recovery operation watch` estimates the remaining time.",
            Unit.SHARE,
            (Query(top(_SHARE), _NAMED),),
            to=_PROCESSES,
            look=Look.BARS,
            nothing="none is open",
            runbook="RecoveryOperationStands",
        ),
        Panel(
            "Done",
            "Processes that are done, of the ten largest operations.",
            Unit.NUMBER,
            (Query(top(_DONE), _NAMED),),
            to=_PROCESSES,
            nothing="none is open",
        ),
        Panel(
            "Found",
            "Processes that the plan will change, of the ten largest operations. Grows while an operation is planned.",
            Unit.NUMBER,
            (Query(top(_FOUND), _NAMED),),
            to=_PROCESSES,
            nothing="none is open",
        ),
        Panel(
            "Rate",
            "Processes done per second, of the ten fastest operations. `recovery operation rate` limits it.",
            Unit.PER_SECOND,
            (
                Query(
                    top(f"max by (operation, kind) (deriv(recovery_operation_done{{{_KIND}}}[$__rate_interval]) >= 0)"),
                    _NAMED,
                ),
            ),
            to=_RECOVERY,
            width=12,
            nothing="none is open",
            runbook="RecoveryOperationStands",
        ),
        Panel(
            "Sweeps that nobody took",
            "Requests for a sweep that no worker took in time. Start a worker for Spark, or order with `--no-spark`.",
            Unit.NUMBER,
            (Query(increase("recovery_messages_refused_total", where='reason="expired"')),),
            to=_RECOVERY,
            look=Look.STAT,
            width=6,
            levels=(orange(1),),
            nothing="none",
        ),
        Panel(
            "Workers for Spark",
            "Live workers that serve Spark. They run the daily sweeps that beat orders.",
            Unit.NUMBER,
            (Query("max(recovery_spark_workers)"),),
            to=_RECOVERY,
            look=Look.STAT,
            width=6,
            nothing="none ever",
            runbook="RecoverySparkWorkerGone",
        ),
    ),
)

EFFECTS = Section(
    "What operators and sweeps did",
    (
        Panel(
            "Tasks and processes",
            "Tasks restarted, processes set running again, processes aborted. `recovery audit` shows by whom and why.",
            Unit.PER_SECOND,
            (Query(rate("recovery_operations_total", "operation"), "{{operation}}"),),
            to=_PROCESSES,
            nothing="none",
        ),
        Panel(
            "Findings",
            "Findings of rules, in sweeps and scanners.",
            Unit.PER_SECOND,
            (Query(rate("recovery_findings_total", "rule"), "{{rule}}"),),
            to=_RECOVERY,
            look=Look.STACK,
            nothing="nothing was found",
        ),
        Panel(
            "Repairs",
            "Repairs that changed something, by sweeps and scanners.",
            Unit.PER_SECOND,
            (Query(rate("recovery_repairs_total", "rule"), "{{rule}}"),),
            to=_RECOVERY,
            look=Look.STACK,
            nothing="nothing was repaired",
        ),
    ),
)

BOARD = Board(
    "recovery-operations",
    "Recovery: Operations",
    "Operators' work on many processes at once: which are open, their progress, speed and results.",
    (KIND,),
    (OPEN, PROGRESS, EFFECTS),
)
