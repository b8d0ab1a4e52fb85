"""The failure map in words, for operators: of each rule what happened, what shows it, what is done, what to look at.

The page docs/failure-map.md is made from this, and `recovery check` tells it with each finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.rules.findings import Rule


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """A rule in words, as Markdown."""

    happened: str
    shown_by: str
    done: str
    look_at: str


NOTHING = "Nothing."

CATALOGUE: Mapping[Rule, RuleExplanation] = {
    Rule.WORK_TIMEOUT: RuleExplanation(
        "An actor took the task and brought no answer.",
        "`working`, and its deadline is past.",
        "Queued again under a new pass, a timeout counted; none of what was claimed [in a "
        "batch](records.md#quick-tasks-in-batches) and may not have begun. After further losses in a row `delayed` "
        "first, for [1, 2, 4 … 30 s](retry.md#lost-attempts). With `restart_after_work_timeout=False`, or "
        "at the last of `max_work_timeouts`: ended with the error `WorkTimeout`, and the process breaks.",
        "Does the function hang, or is the actor's `worker_timeout` too short? It should call `heartbeat()`.",
    ),
    Rule.WORKER_LOST: RuleExplanation(
        "The worker that claimed the task is gone.",
        "Its parent saw the process die, a worker of the same host sees that its process is gone, or its heartbeat is "
        "overdue.",
        "As `WORK_TIMEOUT`, without waiting for the deadline. If the whole worker is gone no timeout is counted.",
        "The worker's log and the kernel's: often memory ran out.",
    ),
    Rule.TASK_TIMEOUT: RuleExplanation(
        "The task as a whole took longer than its actor's `task_timeout`, all attempts and waits in the queue "
        "together.",
        "`queued` or `working`, and so long ago first queued.",
        "Ended with the error `TaskTimeout`. While an actor works on it only with `force_finish_after_task_timeout`; "
        "else at its work deadline, instead of another attempt.",
        "Are there enough workers for the actor, or is the time too short?",
    ),
    Rule.DUE: RuleExplanation(
        "A delay has ended, or the wait for a [retry](retry.md).",
        "`delayed`, and its time has come.",
        "Queued.",
        "Nothing: this is normal.",
    ),
    Rule.DEADLINE_MISSING: RuleExplanation(
        "A live record has no deadline, or one over ten years off, so that nobody would ever look at it again.",
        "`delayed`, `queued` or `working`, a running process, or an open graph, without `recoveryTime` or with one "
        "that far off.",
        "Given one, which is now; the other rules do the rest.",
        "Who wrote it? The database refuses such a write unless it is told not to.",
    ),
    Rule.SERVERS_WERE_DOWN: RuleExplanation(
        "No worker polls anything: all of them are off, or just starting.",
        "`queued` past its deadline, and no queue at all is polled.",
        "Nothing but to look again: whoever starts takes the messages that are there.",
        "Start workers. `recovery doctor` tells what is missing.",
    ),
    Rule.NO_ACTORS: RuleExplanation(
        "No worker serves this actor, or none has code that accepts the task's call.",
        "`queued` past its deadline, and nobody polls its queue, though others are polled. `recovery check` and "
        "`recovery doctor` tell before that, as soon as no worker that lives serves the actor. A task that "
        "[waits for a newer worker](upgrades.md) is `delayed`, with the versions that refused it.",
        "Nothing but to look again, when the wait is twice as long. A task that waits for a newer worker is queued "
        "again at least every 30 s.",
        "Start a worker that serves the actor; `recovery actor list` shows when each queue was polled, and which "
        "actors are blocked.",
    ),
    Rule.ACTORS_LAG: RuleExplanation(
        "The workers can't keep up.",
        "`queued` past its deadline, its queue is polled, its message may still come.",
        "Nothing but to look again. A second message would only make the queue longer.",
        "More workers for the actor.",
    ),
    Rule.DECISION_NOT_APPLIED: RuleExplanation(
        "A result was accepted, and its worker ended before it told the graph.",
        "`finished`, but not known to be applied; or the graph has the task as open; or it failed, and the process "
        "still runs.",
        "Applied (again): children made, graph updated, what is ready queued, the process ended if nothing is left.",
        "Nothing. Mostly only the word that it was applied is missing.",
    ),
    Rule.CHILDREN_MISSING: RuleExplanation(
        "A decision was applied, and records of tasks that it scheduled are not there.",
        "A task is finished in the graph, and a child of it has neither Task nor Decision.",
        "Made again from the decision, which holds them.",
        "A failover of MongoDB took back writes, or somebody deleted records.",
    ),
    Rule.READY_NOT_QUEUED: RuleExplanation(
        "A task waits for nothing any more, and was not queued.",
        "`waiting`, open in the graph, no open dependency.",
        "Queued.",
        NOTHING,
    ),
    Rule.MESSAGE_LOST: RuleExplanation(
        "Redis lost the message, or it was never pushed.",
        "`queued`, but Redis lost its data since then, a younger message of the queue was taken already, or the queue "
        "was polled and empty since then.",
        "Queued again under a new pass, and pushed.",
        "Redis: was it restarted or flushed, does it evict?",
    ),
    Rule.START_NOT_REGISTERED: RuleExplanation(
        "A client was told that its process is started, and then all was cut off.",
        "The process has no graph, start task or start decision, and nothing is decided.",
        "Registered as at the start.",
        NOTHING,
    ),
    Rule.GRAPH_MISSING: RuleExplanation(
        "The graph is gone, and with it what waits for what.",
        "Decisions are finished, and there is no graph. Seen at once when a task of the process ends.",
        "Made again from the decisions, which hold all that was accepted. No finished task runs again.",
        "Who deleted it? Was a backup restored in part?",
    ),
    Rule.FINISHED_UNDECIDED: RuleExplanation(
        "The graph knows a result that the decision does not: the decision was lost, or an older one restored.",
        "Finished in the graph, and its decision is not.",
        "Put back to not finished, with what waits for it, and queued: it is run once more.",
        "A restored backup, or writes that a failover took back.",
    ),
    Rule.TASK_MISSING: RuleExplanation(
        "The Task record is gone: what is to be done.",
        "Open in the graph, with a Decision and without a Task.",
        "Made again from the decision of the task that scheduled it, or from the process. If that is lost too, the "
        "process breaks with `RecordsLost`.",
        "Who deleted it? Was a backup restored in part?",
    ),
    Rule.DECISION_MISSING: RuleExplanation(
        "The Decision record is gone: how far the task is, or its result.",
        "The graph names the task, or it is the start of a process of which others are decided, and there is no "
        "Decision.",
        "Made again from the decision of the task that scheduled it, and run. If that is lost too, or it is the "
        "start's own and its children are known to nobody else, the process breaks with `RecordsLost`.",
        "Who deleted it? Was a backup restored in part?",
    ),
    Rule.DEAD_LINK: RuleExplanation(
        "A task waits for one that is finished already, or that nobody knows.",
        "A link of the graph leads to no open task.",
        "The link is dropped; where the finished task promised values of its children, the task waits for those. It "
        "is queued if it waits for nothing else.",
        "Another program wrote the graph, or a backup was restored in part.",
    ),
    Rule.CYCLE: RuleExplanation(
        "Tasks wait for each other, so none of them will ever be ready.",
        "The graph's links lead back to where they came from.",
        "The process breaks with the error `Cycle`, which names them, if a second look at the same graph shows it too.",
        "Another program wrote the graph: promises can't make a circle.",
    ),
    Rule.FINISH_NOT_RECORDED: RuleExplanation(
        "All tasks are done, and the process still runs.",
        "Its graph has nothing open.",
        "The process is finished with its start task's value.",
        NOTHING,
    ),
    Rule.FINISHED_TOO_EARLY: RuleExplanation(
        "The process has a result, and tasks of it are open.",
        "The process is `finished`, its graph is not complete; or it lacks a task that was scheduled and is not done.",
        "Told, and nothing changed: the result was given to somebody.",
        "Who ended it? What its graph has as open goes on, and the results reach nobody.",
    ),
    Rule.PROCESS_TIMEOUT: RuleExplanation(
        "The process took longer than its type's `process_timeout`.",
        "Running, and started so long ago.",
        "Counted once. With `break_after_process_timeout` the process breaks with the error `ProcessTimeout`.",
        "`recovery show` tells what it waits for.",
    ),
    Rule.ABORT_CUT_OFF: RuleExplanation(
        "An operator aborted the process, and the abort was cut off half way.",
        "The process is `aborted`, and its graph is not at rest.",
        "The rest of the abort: its tasks end, its graph is at rest.",
        NOTHING,
    ),
    Rule.REDO_CUT_OFF: RuleExplanation(
        "An operator has tasks of the process done again, and that was cut off half way.",
        "The process runs, and its `redo` names the tasks.",
        "The rest of it: what depends on them is put back to waiting, what they had scheduled goes, the graph is made "
        "anew in the new epoch.",
        NOTHING,
    ),
    Rule.REMOVAL_CUT_OFF: RuleExplanation(
        "The process is over and is being removed, and that was cut off half way.",
        "The process is marked `removing`.",
        "The rest of it: its records go, and it last.",
        NOTHING,
    ),
    Rule.ORDER_MISSING: RuleExplanation(
        "The process is marked to be removed or done again, and nobody who may has ordered it: who may start processes "
        "may write them, and their marks are no orders.",
        "It is marked `removing` or `redo`, and `orders` has none for this process, epoch and mark.",
        "The mark `removing` is taken off. What is to be done again is told, and nothing is done about the process: a "
        "worker of an older version, which knows no orders, has begun it, perhaps.",
        "Who wrote it? To have it done again, `recovery restart`, which orders it.",
    ),
    Rule.INTERRUPTION_MISSING: RuleExplanation(
        "A process is broken, and what it broke for is not listed: `recovery broken list` does not show it, and nobody "
        "restarts it.",
        "The process is `broken`, and `interruptions` lacks a task that failed, or the process as a whole. A broken "
        "process is at rest: a sweep or `recovery check` finds it, and no deadline.",
        "Listed again, from the failed decision's error or the process's own.",
        "Who deleted it? Was a backup restored in part?",
    ),
    Rule.MARKER_MISSING: RuleExplanation(
        "A process of a type with `markers` broke, and whoever was to write its marker was cut off: others of its kind "
        "could still be started.",
        "The process is `broken`, and its `markerDue` is set.",
        "Written, unless there is one, or an operator has cleared one since the process broke.",
        NOTHING,
    ),
    Rule.RECORD_DAMAGED: RuleExplanation(
        "A record is there, and can't be read: another program, or a person, wrote something else into it.",
        "A field has a value that it can't have, or one is missing that is always written: `state`, `epoch`, what a "
        "graph is made of, the error of a process that is broken or aborted, the result of one that is finished. Or "
        "something in a process's records is such that no rule can judge it.",
        "Where nothing is lost with it, the field is dropped: a counter begins anew, a deadline is now. A graph is "
        "made again from the decisions, a task from the decision of the task that scheduled it; what ended with no "
        "outcome, and was not applied, is run again. Else it is told, its deadline is postponed, and nothing is "
        "changed. Other processes go on. Who needs a value that can't be read breaks the process with that said.",
        "Who wrote it? The database refuses such a write unless it is told not to. Put the field right, or abort the "
        "process.",
    ),
    Rule.GRAPH_CONTRADICTED: RuleExplanation(
        "The graph does not say what the decisions say: tasks are lost from it, or it names some that never were.",
        "A task that was scheduled is neither open nor finished in the graph, or one is that no decision scheduled and "
        "that has no records; and all decisions are there that the graph has as finished. Where a process has more "
        "decisions than that, it is looked for before the process is finished.",
        "The graph is made anew from the decisions. No finished task runs again. If the process has finished, nothing "
        "of it is run.",
        "Who wrote it?",
    ),
    Rule.EPOCH_WRONG: RuleExplanation(
        "Records of a process are of another epoch than the process, so nothing that comes of them is accepted.",
        "The `epoch` of the graph or of a decision is not that of the process.",
        "They are set to the epoch of the process. An attempt that runs meanwhile is stale, and its task runs again.",
        "Who wrote it? Was a backup restored in part?",
    ),
    Rule.TIME_IMPOSSIBLE: RuleExplanation(
        "A time can't be, and who believed it would wait for as long.",
        "`startedAt`, `touchedAt` or an outcome's `finishedAt` is missing or over ten minutes ahead; a deadline is far "
        "later than what it is there for; or a retry is planned for after its last moment.",
        "It is set to what it should be: a start to what the id says, a deadline to what is due, the others to now.",
        "Who wrote it? Was the clock of MongoDB's machine years ahead?",
    ),
    Rule.ORPHAN: RuleExplanation(
        "There are records of a process that is not there.",
        "A graph, tasks or decisions, and no Process of that id, which is always written first. Where nothing but "
        "tasks is left, sweeps notice it by their number, and with `--thorough` in any case.",
        "Told, and nothing changed: only a person can know whether the process or its records are to go.",
        "Who deleted the process? Was a backup restored in part?",
    ),
}
