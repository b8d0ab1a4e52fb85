"""Explains the rules of the failure map to operators: what happened, what shows it, what is done, what to look at.

The table of docs/failure-map.md is generated from this catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.rules.findings import Rule


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """The explanation of a rule as Markdown: one text per column of the table in docs/failure-map.md."""

    happened: str
    shown_by: str
    done: str
    look_at: str


NOTHING = "Nothing."

CATALOGUE: Mapping[Rule, RuleExplanation] = {
    Rule.WORK_TIMEOUT: RuleExplanation(
        "A worker claimed the task and returned no result in time.",
        "`working`, and its deadline is past.",
        "Requeued under a new pass, and a timeout is counted, unless the task was claimed [in a "
        "batch](records.md#quick-tasks-in-batches) and may not have begun. After further consecutive losses it is "
        "`delayed` first, for [1, 2, 4 … 30 s](retry.md#lost-attempts). With `restart_after_work_timeout=False`, or "
        "after `max_work_timeouts` losses, the task ends with the error `WorkTimeout` and the process breaks.",
        "Does the function hang, or is the actor's `worker_timeout` too short? A long function should call "
        "`heartbeat()`.",
    ),
    Rule.WORKER_LOST: RuleExplanation(
        "The worker that claimed the task is gone.",
        "The process's parent saw it die, a worker on the same host sees that it is gone, or its heartbeat is overdue.",
        "As for `WORK_TIMEOUT`, without waiting for the deadline. If the whole worker is gone, no timeout is counted.",
        "The logs of the worker and of the kernel: often the machine ran out of memory.",
    ),
    Rule.TASK_TIMEOUT: RuleExplanation(
        "The task took longer than its actor's `task_timeout`, over all attempts and all time in the queue.",
        "`queued`, `delayed` or `working`, and first queued longer ago than `task_timeout`.",
        "The task ends with the error `TaskTimeout`. While an attempt runs, it ends at once only with "
        "`force_finish_after_task_timeout`; otherwise it ends at the attempt's deadline, instead of another attempt.",
        "Are there enough workers for the actor, or is the `task_timeout` too short?",
    ),
    Rule.DUE: RuleExplanation(
        "A delay, or the backoff before a [retry](retry.md), is over.",
        "`delayed`, and its time has come.",
        "Queued.",
        "Nothing: this is normal.",
    ),
    Rule.DEADLINE_MISSING: RuleExplanation(
        "A live record has no deadline, or one over ten years ahead, so no scanner would ever look at it again.",
        "A `delayed`, `queued` or `working` task, a running process, or an open graph has no `recoveryTime`, or one "
        "that is over ten years ahead.",
        "The deadline is set to now; then the other rules apply.",
        "Who wrote the record? The database refuses such a write unless validation was bypassed.",
    ),
    Rule.SERVERS_WERE_DOWN: RuleExplanation(
        "No worker polls any queue: all workers are off or just starting.",
        "`queued`, its deadline is past, and no queue at all is polled.",
        "Its deadline is postponed. Workers that start take the messages that are in the queue.",
        "Start workers. `recovery doctor` reports what is missing.",
    ),
    Rule.NO_ACTORS: RuleExplanation(
        "No worker serves this actor, or no worker's code accepts the task's call.",
        "`queued`, its deadline is past, and its queue is not polled, although others are. `recovery check` and "
        "`recovery doctor` report this earlier, as soon as no live worker serves the actor. A task that "
        "[waits for a newer worker](upgrades.md) is `delayed`, with the versions that refused it.",
        "Its deadline is postponed until it has waited twice as long. A task that waits for a newer worker is queued "
        "again at least every 30 s.",
        "Start a worker that serves the actor. `recovery actor list` shows when each queue was polled and which "
        "actors are blocked.",
    ),
    Rule.ACTORS_LAG: RuleExplanation(
        "The workers cannot keep up.",
        "`queued`, its deadline is past, its queue is polled, and its message may still come.",
        "Its deadline is postponed. A second message would only make the queue longer.",
        "Start more workers for the actor.",
    ),
    Rule.DECISION_NOT_APPLIED: RuleExplanation(
        "A result was accepted, and its worker ended before the result was applied to the graph.",
        "`finished`, but not confirmed as applied; or the graph has the task as open; or the task failed and the "
        "process still runs.",
        "Applied (again): children are created, the graph is updated, ready tasks are queued, and the process ends if "
        "nothing is open.",
        "Nothing. Usually the decision was applied and only the confirmation is missing.",
    ),
    Rule.CHILDREN_MISSING: RuleExplanation(
        "A decision was applied, and records of tasks that it scheduled are absent.",
        "A task is finished in the graph, and one of its children has neither Task nor Decision.",
        "Created again from the decision, which holds all data of the children.",
        "A failover of MongoDB rolled back writes, or somebody deleted records.",
    ),
    Rule.READY_NOT_QUEUED: RuleExplanation(
        "A task no longer waits for another task, and was not queued.",
        "`waiting`, open in the graph, no open dependency.",
        "Queued.",
        NOTHING,
    ),
    Rule.MESSAGE_LOST: RuleExplanation(
        "Redis lost the message, or the message was never pushed.",
        "`queued`, and since then Redis lost its data, a younger message of the queue was taken, or the queue was "
        "polled and empty.",
        "Requeued under a new pass, with a new message.",
        "Redis: was it restarted or flushed, or does it evict keys?",
    ),
    Rule.START_NOT_REGISTERED: RuleExplanation(
        "The start of a process was acknowledged to the client, and the client was cut off afterwards.",
        "The process has no graph, start task or start decision, and no decision is finished.",
        "The missing records are created, as at the start.",
        NOTHING,
    ),
    Rule.GRAPH_MISSING: RuleExplanation(
        "The graph is gone, and with it the information which task waits for which.",
        "Decisions are finished, and the graph is absent. Noticed at once when a task of the process ends.",
        "Made again from the decisions, which hold all that was accepted. No finished task runs again.",
        "Who deleted it? Was only a part of a backup restored?",
    ),
    Rule.FINISHED_UNDECIDED: RuleExplanation(
        "The graph knows of a result that the decision does not have: the decision was lost, or an older one restored.",
        "The task is finished in the graph, and its decision is not.",
        "The task and its dependents are put back to not finished, and the task is queued: it runs again.",
        "A restored backup, or writes that a failover rolled back.",
    ),
    Rule.TASK_MISSING: RuleExplanation(
        "The Task record is gone, which has the arguments.",
        "The task is open in the graph and has a Decision, but no Task.",
        "Made again from the decision of the task that scheduled it, or from the process. If that is lost, too, the "
        "process breaks with `RecordsLost`.",
        "Who deleted it? Was only a part of a backup restored?",
    ),
    Rule.DECISION_MISSING: RuleExplanation(
        "The Decision record is gone, which has the task's state or result.",
        "There is no Decision, although the graph names the task, or it is the start task of a process with other "
        "finished decisions.",
        "Made again from the decision of the task that scheduled it, and run again. If that is lost, too, or if it is "
        "the start task's decision and no other record names its children, the process breaks with `RecordsLost`.",
        "Who deleted it? Was only a part of a backup restored?",
    ),
    Rule.DEAD_LINK: RuleExplanation(
        "A task waits for a task that is finished already or unknown.",
        "A link of the graph leads to a task that is not open.",
        "The link is dropped. If the value of the finished task promises values of its children, the task waits for "
        "those. If it waits for nothing else, it is queued.",
        "Another program wrote the graph, or only a part of a backup was restored.",
    ),
    Rule.CYCLE: RuleExplanation(
        "Tasks wait for each other, so none of them will ever be ready.",
        "The graph's links form a circle.",
        "The process breaks with the error `Cycle`, which names the tasks, if a second check of the same graph shows "
        "the circle, too.",
        "Another program wrote the graph: promises cannot form a circle.",
    ),
    Rule.FINISH_NOT_RECORDED: RuleExplanation(
        "All tasks are finished, and the process still runs.",
        "The graph has no open task.",
        "The process is finished with its start task's value.",
        NOTHING,
    ),
    Rule.FINISHED_TOO_EARLY: RuleExplanation(
        "The process has a result although some of its tasks are open.",
        "The process is `finished`, and its graph has open tasks, or lacks a scheduled task that is not finished.",
        "Reported only, and nothing is changed, because somebody may have received the result.",
        "Who ended the process? The open tasks go on, but their results have no effect on the process's result.",
    ),
    Rule.PROCESS_TIMEOUT: RuleExplanation(
        "The process took longer than its type's `process_timeout`.",
        "Running, and started longer ago than `process_timeout`.",
        "Counted once. With `break_after_process_timeout`, the process breaks with the error `ProcessTimeout`.",
        "`recovery show` shows what the process waits for.",
    ),
    Rule.ABORT_CUT_OFF: RuleExplanation(
        "An operator aborted the process, and the abort was cut off half way.",
        "The process is `aborted`, and its graph or tasks are not at rest.",
        "The abort is completed: its tasks end, and its graph is at rest.",
        NOTHING,
    ),
    Rule.REDO_CUT_OFF: RuleExplanation(
        "An operator restarted tasks of the process, and the restart was cut off half way.",
        "The process runs, and its `redo` names the tasks.",
        "The restart is completed: dependents of the tasks are put back to waiting, tasks that these had scheduled are "
        "removed, and the graph is made anew in the new epoch.",
        NOTHING,
    ),
    Rule.REMOVAL_CUT_OFF: RuleExplanation(
        "The ended process is being removed, and the removal was cut off half way.",
        "The process is marked `removing`.",
        "The removal is completed: all of its records are removed, the process last.",
        NOTHING,
    ),
    Rule.ORDER_MISSING: RuleExplanation(
        "The process is marked to be removed or restarted, but no operator ordered it. Clients may write processes, so "
        "a mark alone is no order.",
        "It is marked `removing` or `redo`, and `orders` has no order for this process, epoch and mark.",
        "The mark `removing` is taken off. The mark `redo` is only reported and the process left alone, because a "
        "worker of an older version, which knows no orders, may have begun the restart.",
        "Who wrote the mark? To restart the process, run `recovery restart`, which creates an order.",
    ),
    Rule.INTERRUPTION_MISSING: RuleExplanation(
        "A process is broken, and the failure is not listed: `recovery broken list` does not show it, so nobody "
        "restarts it.",
        "The process is `broken`, and `interruptions` lacks a failed task, or the process as a whole. Because a broken "
        "process is at rest, a sweep or `recovery check` finds it, not a deadline.",
        "Listed again, with the error of the failed decision or of the process.",
        "Who deleted it? Was only a part of a backup restored?",
    ),
    Rule.MARKER_MISSING: RuleExplanation(
        "A process of a type with `markers` broke, and the worker was cut off before it wrote the marker. Further "
        "processes of the same type and key could still be started.",
        "The process is `broken`, and its `markerDue` is set.",
        "Written, unless there is a marker already, or an operator has cleared one since the process broke.",
        NOTHING,
    ),
    Rule.RECORD_DAMAGED: RuleExplanation(
        "A record exists but cannot be read: another program, or a person, changed it.",
        "A field has an impossible value, or a field is missing that is always written: `state`, `epoch`, the parts of "
        "a graph, the error of a broken or aborted process, the result of a finished process. Or a rule fails on the "
        "records of a process.",
        "If nothing is lost by it, the damaged field is dropped: a counter begins anew, a deadline is now. A graph is "
        "made again from the decisions, and a Task from the decision of the task that scheduled it. A finished task "
        "whose outcome cannot be read runs again if it was not applied. All other damage is reported, and the deadline "
        "is postponed. Other processes go on. If a task needs a value that cannot be read, its process breaks with an "
        "error that says so.",
        "Who wrote it? The database refuses such a write unless validation was bypassed. Correct the field, or abort "
        "the process.",
    ),
    Rule.GRAPH_CONTRADICTED: RuleExplanation(
        "The graph contradicts the decisions: it lacks tasks, or it names tasks that never existed.",
        "A scheduled task is neither open nor finished in the graph, or the graph has a task that no decision "
        "scheduled and that has no records; and all tasks that are finished in the graph have a finished decision. If "
        "a process has more decisions than its graph has tasks, this is checked before the process is finished.",
        "The graph is made again from the decisions. No finished task runs again. If the process has finished, none of "
        "its tasks is run.",
        "Who wrote it?",
    ),
    Rule.EPOCH_WRONG: RuleExplanation(
        "Records of a process have another epoch than the process, so their results are never accepted.",
        "The `epoch` of the graph or of a decision differs from the process's.",
        "The epoch of the process is set in them. An attempt that runs meanwhile is stale, and its task runs again.",
        "Who wrote it? Was only a part of a backup restored?",
    ),
    Rule.TIME_IMPOSSIBLE: RuleExplanation(
        "A time is impossible, for example far in the future; trusting it would stall the process.",
        "`startedAt`, `touchedAt` or an outcome's `finishedAt` is missing or over ten minutes ahead; a deadline is "
        "much later than its purpose needs; or a retry is planned for after the last moment for retries.",
        "Corrected: `startedAt` to the time in the process's id, a deadline to when it is due, other times to now.",
        "Who wrote it? Was the clock of MongoDB's machine years ahead?",
    ),
    Rule.ORPHAN: RuleExplanation(
        "Records of a process exist, but the process does not.",
        "There is a graph, a task or a decision, and no Process with that id, which is always written first. If only "
        "tasks are left, a sweep notices it by their number, and with `--thorough` in any case.",
        "Reported only, because a person must decide whether the process is to be restored or its records removed.",
        "Who deleted the process? Was only a part of a backup restored?",
    ),
}
