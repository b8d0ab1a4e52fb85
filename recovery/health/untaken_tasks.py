"""What tasks wait for that no worker will take, in words: the same for `doctor`, `status`, `show`, `check`, `start`.
And the doctor's checks of it: is each actor served by a live worker, and does one consume each queue with messages?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem, warning
from recovery.records import Decision, DecisionState, ProcessState
from recovery.records.ids import CANARY, is_record_id
from recovery.rules import Finding, Repair, Rule, Snapshot, foreign_id
from recovery.store import ActorQueue
from recovery.wording import count, show_age

_NOT_TAKEN = frozenset({Rule.NO_ACTORS, Rule.SERVERS_WERE_DOWN})
_IN_QUEUE = frozenset({DecisionState.QUEUED, DecisionState.DELAYED})
"""Those that are in a queue, or will be by themselves: tasks go on though another has failed."""
_KINDS = {
    DecisionState.QUEUED: "queued",
    DecisionState.DELAYED: "delayed until {}",
    DecisionState.WAITING: "to be queued after other tasks",
}


WAITS_FOR_NEWER = "waits for a newer worker"
"""What people are shown of a task whose call no worker's code accepts so far."""
VERSIONS_SHOWN = 3


def why_refused(decision: Decision) -> str | None:
    """Return what a task waits for, if the code of those workers that claimed it does not accept its call."""
    if not decision.waits_for_newer_worker or decision.refused is None:
        return None
    if decision.waits_for_pinned_version:
        return f"waits for a worker of version {decision.pinned_to}, to which it is pinned"
    by = decision.refused.by[-VERSIONS_SHOWN:]
    return f"{WAITS_FOR_NEWER}: {'; '.join(f'version {one.version} {one.why}' for one in by)}"


def why(queue: ActorQueue | None) -> str | None:
    """Return what tasks of an actor wait for, now or when their turn comes, if no worker will take them."""
    if queue is None:
        return None
    if queue.blocked_seconds is not None:
        since = show_age(queue.blocked_seconds)
        return f"{queue.actor} has been blocked for {since}: `recovery actor unblock {queue.actor}`"
    if not queue.is_served:
        return f"no worker serves {queue.actor}"
    return None


def trouble(queue: ActorQueue | None) -> str | None:
    """Return what an actor's tasks wait for, if it is known to have tasks that no worker will take."""
    return why(queue) if queue is not None and (queue.waits_for_operator or queue.waits_for_nobody) else None


def reasons(queues: Mapping[str, ActorQueue]) -> dict[str, str]:
    """Return {actor: what its tasks wait for}, of the actors whose tasks no worker will take."""
    blocked_or_waits = (q for q in queues.values() if q.blocked_seconds is not None or q.waits_for_nobody)
    return {queue.actor: reason for queue in blocked_or_waits if (reason := why(queue))}


def amounts(queue: ActorQueue) -> list[str]:
    """Return how many tasks of an actor wait, and how many are to come, as far as they were counted."""
    to_come = queue.to_come
    counts = (
        (queue.tasks or 0, "waiting"),
        (to_come.delayed, "delayed"),
        (to_come.after_others, "after other tasks"),
        (to_come.of_broken, "of processes that are broken"),
        (to_come.working, "worked on"),
    )
    return [f"{count:,} {what}" for count, what in counts if count]


def advice(queues: Sequence[ActorQueue]) -> str:
    """Return what to do about these actors, at least one: tasks wait for them, and no live worker serves them."""
    name = queues[0].actor if len(queues) == 1 else "NAME"
    if all(queue.is_known for queue in queues):
        start = f"start a worker that serves {name}"
    else:
        start = "restart the workers with the code that has it: they take up new actors at their start only"
    return (
        f'{start}. If the function was renamed or removed: give it the old name, `@app.actor("{name}")`, or abort what '
        f"waits for it, `recovery broken abort --waiting-for {name}`"
    )


def findings(
    snapshot: Snapshot, found: Sequence[Finding], queues: Mapping[str, ActorQueue], pinned: Mapping[str, str]
) -> list[Finding]:
    """What was found on a process, and with it what it waits for that no worker will take, past its deadline or not:
    one finding for each actor, in place of those of single tasks that say the same. `pinned` is {decision: what it
    waits for}, of those that are pinned to a version which no live worker runs."""
    repaired = {finding.record for finding in found if finding.rule not in _NOT_TAKEN}
    process = snapshot.process
    runs = process is not None and process.state is ProcessState.RUNNING
    # Of a process that is broken what waits for other tasks waits for an operator.
    undecided = _IN_QUEUE | {DecisionState.WAITING} if runs else _IN_QUEUE
    waiting: dict[str, list[Decision]] = defaultdict(list)
    for decision in snapshot.decisions.values():
        if decision.state in undecided and decision.id not in repaired and why(queues.get(decision.actor)):
            waiting[decision.actor].append(decision)
    told = {decision.id for decisions in waiting.values() for decision in decisions}
    all_found = [finding for finding in found if finding.record not in told]
    served = any(queue.is_served for queue in queues.values())
    queued = (one for one in snapshot.decisions.values() if one.state is DecisionState.QUEUED)
    all_found += [foreign_id(one) for one in queued if one.id not in repaired and not is_record_id(one.id)]
    all_found += _not_taken(waiting, queues, Rule.NO_ACTORS if served else Rule.SERVERS_WERE_DOWN)
    all_found += _refused(snapshot, told | repaired, pinned, undecided)
    if process is not None and runs and not all_found and not served:
        evidence = "no worker is alive that serves an actor: nothing of it goes on"
        all_found.append(Finding(Rule.SERVERS_WERE_DOWN, process.id, Repair.WAIT, evidence))
    return all_found


def _refused(
    snapshot: Snapshot, told: Collection[str], pinned: Mapping[str, str], undecided: Collection[DecisionState]
) -> Iterator[Finding]:
    """One finding for all tasks that workers refuse for the same reason, except those that others report."""
    refused: dict[str, list[Decision]] = defaultdict(list)
    for decision in snapshot.decisions.values():
        in_vain = pinned.get(decision.id) if decision.state in undecided else None
        if decision.id not in told and (reason := in_vain or why_refused(decision)) is not None:
            refused[reason].append(decision)
    for reason, alike in refused.items():
        first = min(alike, key=lambda decision: decision.id)
        yield Finding(Rule.NO_ACTORS, first.id, Repair.WAIT, f"{_kinds(alike)}, {reason}", first)


def _not_taken(
    waiting: Mapping[str, Sequence[Decision]], queues: Mapping[str, ActorQueue], rule: Rule
) -> Iterator[Finding]:
    for actor, decisions in waiting.items():
        first = min(decisions, key=lambda decision: decision.id)
        yield Finding(rule, first.id, Repair.WAIT, f"{_kinds(decisions)}, {why(queues[actor])}", first)


def _kinds(decisions: Sequence[Decision]) -> str:
    """Return how many tasks there are in each state."""
    by_state = {state: [one for one in decisions if one.state is state] for state in _KINDS}
    kinds = {state: kind.format(_soonest(by_state[state])) for state, kind in _KINDS.items() if by_state[state]}
    if len(kinds) > 1:
        return ", ".join(f"{len(by_state[state]):,} {kind}" for state, kind in kinds.items())
    (kind,) = kinds.values()
    return f"{len(decisions):,} tasks, each {kind}" if len(decisions) > 1 else kind


def _soonest(decisions: Sequence[Decision]) -> str:
    """When the first of those that are delayed is due."""
    due = min((one.recovery_time for one in decisions if one.recovery_time), default=None)
    return f"{due:%Y-%m-%d %H:%M:%S}" if due else "a time that is not known"


def actors(resources: Resources) -> Check:
    """Every actor that tasks wait for, or that a worker ever told of, is served by a worker that lives; none is
    blocked."""
    return judge_actors(list(resources.store.waiting.by_actor().values()))


def judge_actors(actors: Sequence[ActorQueue]) -> Check:
    """Return what the state of these queues means."""
    if not actors:
        return ok("actors", "none known: no worker has ever run here")
    alive = any(queue.workers for queue in actors)
    lonely = [queue for queue in actors if queue.waits_for_nobody]
    blocked = [queue for queue in actors if queue.blocked_seconds is not None]
    unserved = [queue for queue in actors if not queue.is_served and queue not in lonely and queue not in blocked]
    held = [queue for queue in unserved if amounts(queue)]
    # Workers need not serve the canary, and no task waits for it but while a drill runs.
    idle = [queue for queue in unserved if queue not in held and queue.actor != CANARY]
    found, todo = [f"{len(actors)} known"], []
    if lonely:
        found.append(f"no worker serves {join_names(map(_waiting, lonely))}")
        todo.append(advice(lonely) if alive else "start workers, see `workers`")
    if held:
        found.append(f"no worker serves {join_names(map(_waiting, held))}")
    if held and alive:
        todo.append(f"start a worker that serves {_name(held)}, or `recovery broken abort --waiting-for {_name(held)}`")
    if idle:
        found.append(f"no worker serves {join_names(queue.actor for queue in idle)}, and no task waits")
    if idle and alive:
        todo.append(f"start a worker of their application, or, if gone for good, `recovery actor forget {_name(idle)}`")
    elif (held or idle) and not alive and not lonely:
        todo.append("start workers, see `workers`")
    if blocked:
        found.append(f"blocked: {join_names(map(_blocked, blocked))}")
        todo.append("their tasks wait until `recovery actor unblock NAME`")
    return _of_actors(found, todo, lonely, unserved)


def _of_actors(
    found: Sequence[str], todo: Sequence[str], lonely: Sequence[ActorQueue], unserved: Sequence[ActorQueue]
) -> Check:
    if lonely:
        return problem("actors", Cause.ACTORS_UNSERVED, "; ".join(found), "; ".join(todo))
    if todo:
        cause = Cause.ACTORS_UNSERVED if unserved else Cause.ACTORS_BLOCKED
        return warning("actors", cause, "; ".join(found), "; ".join(todo))
    return ok("actors", f"{found[0]}, all served")


def queues(resources: Resources) -> Check:
    """No messages wait in a queue that nobody consumes. What waits by the records, `actors` tells."""
    store = resources.store
    actors, polled = store.waiting.by_actor(count_served=False), store.queues.all()
    depths = resources.broker.depths(sorted({*actors, *polled}))
    full = {name: depth for name, depth in depths.items() if depth}
    found = f"{count(sum(full.values()), 'message')} in {count(len(depths), 'queue')}"
    lonely = [name for name in full if name not in actors or not actors[name].is_served]
    if not lonely:
        return ok("queues", found)
    now, names = store.now(), []
    for name in lonely:
        last = polled[name].polled_at if name in polled else None
        since = f"polled {show_age((now - last).total_seconds())} ago" if last else "never polled"
        names.append(f"{name} ({full[name]:,}, {since})")
    found += f"; no worker consumes {join_names(names)}"
    waited_for = (actors[name] for name in lonely if name in actors)
    if any(queue.waiting_seconds is not None or queue.waits_for_nobody for queue in waited_for):
        return problem("queues", Cause.QUEUES_UNSERVED, found, "start a worker that serves them, see `actors`")
    # Left by processes that were aborted, or by others than us: whoever takes one discards it.
    return warning(
        "queues",
        Cause.MESSAGES_LEFT,
        f"{found}; no task waits for them",
        "nothing is to be done: a worker that serves them discards them",
    )


def _name(queues: Sequence[ActorQueue]) -> str:
    return queues[0].actor if len(queues) == 1 else "NAME"


def _waiting(queue: ActorQueue) -> str:
    found = amounts(queue)
    if queue.waiting_seconds is not None:
        found.insert(1, f"the oldest for {show_age(queue.waiting_seconds)}")
    return f"{queue.actor} ({', '.join(found)})"


def _blocked(queue: ActorQueue) -> str:
    return f"{queue.actor} (for {show_age(queue.blocked_seconds)}, {queue.tasks:,} waiting)"
