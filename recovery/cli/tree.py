"""A process's tasks as a tree: each under the task that scheduled it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.text import Text
from rich.tree import Tree

from recovery.cli.interrupted import without_rule
from recovery.cli.output import line, seconds_between, short
from recovery.records import Decision, DecisionState, Process, ProcessState
from recovery.store.views.overview import TaskLine

MAX_LINES = 200
"""More tasks than anybody reads: from there on siblings of one actor and state are one line."""
SHORT_ID = 8
RESULT_SHOWN = 200
"""Characters of a result that are shown."""

STYLES = {
    DecisionState.WAITING.value: "dim",
    DecisionState.DELAYED.value: "blue",
    DecisionState.QUEUED.value: "yellow",
    DecisionState.WORKING.value: "cyan",
    DecisionState.FINISHED.value: "green",
    ProcessState.RUNNING.value: "cyan",
    ProcessState.BROKEN.value: "bold red",
    ProcessState.ABORTED.value: "red",
    "failed": "bold red",
    "no decision": "bold red",
}
NOT_TAKEN = frozenset({DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED})
"""What waits for a worker, or will when its turn comes."""


def heading(process: Process, characters: int, now: datetime) -> Iterator[Text]:
    """What there is to say of the process itself. Of its result, of so many characters, it has the start."""
    yield line((process.id, "bold"), f"  {process.type}  ", (process.state, STYLES.get(process.state, "")))
    if process.custom_id:
        yield line(f"custom id  {process.custom_id}")
    lasted = short(seconds_between(process.started_at, process.ended_at or now))
    started = f"{process.started_at:%Y-%m-%d %H:%M:%S} UTC" if process.started_at else "?"
    yield line(f"started    {started}, {'took' if process.ended_at else 'for'} {lasted}")
    if process.result is not None:
        more = characters - RESULT_SHOWN
        yield line(f"result     {process.result}{f'… and {more} more characters' if more > 0 else ''}")
    if process.error is not None:
        where = f" in task {process.error.task}" if process.error.task else ""
        yield line(f"error      {process.error.kind}: {without_rule(process.error.message)}{where}", style="red")


def tree(
    start: str,
    tasks: Sequence[TaskLine],
    decisions: Mapping[str, Decision],
    now: datetime,
    lonely: Mapping[str, str] = {},
) -> Tree:
    """The tasks from the start task on; tasks whose parent is not there stand beside it. `lonely` is {actor: what its
    tasks wait for}, of those that no worker will take."""
    children: dict[str | None, list[TaskLine]] = defaultdict(list)
    known = {task.id for task in tasks}
    for task in tasks:
        children[task.parent if task.parent in known else None].append(task)
    order = _order(decisions)
    root = Tree(Text(f"{len(tasks)} tasks", style="bold"))
    # A stack, not a recursion: a chain of deciders may be longer than Python's stack.
    rest = [(root, sorted(children[None], key=lambda task: task.id != start))]
    while rest:
        branch, siblings = rest.pop()
        if len(tasks) > MAX_LINES:
            siblings = _counted(branch, siblings, children, decisions, lonely)
        for task in siblings:
            node = branch.add(_line(task, decisions.get(task.id), now, lonely))
            if children[task.id]:
                rest.append((node, sorted(children[task.id], key=lambda task: order.get(task.id, 0))))
    return root


def _order(decisions: Mapping[str, Decision]) -> dict[str, int]:
    """Places of children in the order in which their parents scheduled them."""
    return {child.id: place for decision in decisions.values() for place, child in enumerate(decision.children)}


def _counted(
    branch: Tree,
    siblings: Sequence[TaskLine],
    children: Mapping[str | None, Sequence[TaskLine]],
    decisions: Mapping[str, Decision],
    lonely: Mapping[str, str],
) -> list[TaskLine]:
    """Add one line for each actor and state; what is left to be shown alone: deciders, and what is alone."""
    groups: dict[tuple[str, str], list[TaskLine]] = defaultdict(list)
    for task in siblings:
        groups[task.actor, _state(decisions.get(task.id))].append(task)
    alone = []
    for (actor, state), group in groups.items():
        without = [task for task in group if not children.get(task.id)]
        if len(without) < 2:
            alone += group
            continue
        alone += [task for task in group if children.get(task.id)]
        attempts = Counter(decisions[task.id].attempts for task in without if task.id in decisions)
        again = sum(count for number, count in attempts.items() if number > 1)
        more = f", {again} of them more than once attempted" if again else ""
        waits = lonely.get(actor, "") if state in NOT_TAKEN else ""
        branch.add(line(f"{len(without)} × {actor}  ", (state, STYLES.get(state, "")), more, _waits(waits)))
    return alone


def _line(task: TaskLine, decision: Decision | None, now: datetime, lonely: Mapping[str, str]) -> Text:
    state = _state(decision)
    text = line((task.id[:SHORT_ID], "dim"), f"  {task.actor}  ", (state, STYLES.get(state, "")))
    if decision is None:
        return text
    if decision.attempts > 1:
        text.append(f"  {decision.attempts} attempts")
    if decision.timeouts:
        text.append(f"  {decision.timeouts} timeouts", style="yellow")
    if (lost := decision.lost_attempt) is not None:
        text.append(line((f"  attempt {lost.attempt}: its process {lost.how}", "yellow")))
    if age := _age(decision, now):
        text.append(line((f"  {age}", "dim")))
    if decision.state in NOT_TAKEN:
        text.append(line(_waits(lonely.get(decision.actor, ""))))
    if decision.outcome and decision.outcome.error:
        error = decision.outcome.error
        text.append(line((f"  {error.kind}: {error.message.splitlines()[0] if error.message else ''}", "red")))
    return text


def _waits(reason: str) -> tuple[str, str]:
    return f"  {reason}" if reason else "", "bold red"


def _age(decision: Decision, now: datetime) -> str:
    """How long it has been in its state, or how long its last attempt took."""
    if decision.state is DecisionState.QUEUED:
        return f"for {short(seconds_between(decision.queued_at, now))}"
    if decision.state is DecisionState.WORKING:
        return f"for {short(seconds_between(decision.claimed_at, now))} by {decision.worker}"
    if decision.state is DecisionState.DELAYED and decision.recovery_time:
        return f"due in {short(seconds_between(now, decision.recovery_time))}"
    if decision.state is DecisionState.FINISHED and decision.outcome and decision.outcome.finished_at:
        return f"took {short(seconds_between(decision.claimed_at, decision.outcome.finished_at))}"
    return ""


def _state(decision: Decision | None) -> str:
    if decision is None:
        return "no decision"
    failed = decision.outcome is not None and decision.outcome.error is not None
    return "failed" if failed else decision.state.value
