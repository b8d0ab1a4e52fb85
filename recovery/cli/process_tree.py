"""A process as `recovery show` reads it from the database and shows it to people: its own lines, its tasks as a tree,
each under the task that scheduled it, and what it had come to before it was restarted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

from recovery.cli.interrupted import without_rule
from recovery.cli.output import line, seconds_between, utc, wrap
from recovery.cli.task_texts import READ, SHORT_ID, call_line, hint
from recovery.health.untaken_tasks import reasons, why_refused
from recovery.records import UNTAKEN_DECISIONS, Decision, DecisionState, Process, ProcessState
from recovery.records.decision import ABORTED
from recovery.store.views.process_lookup import TaskLine
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.errors import DamagedRecord
    from recovery.records import RepairNote
    from recovery.store.views.process_lookup import CallTexts

RESULT_SHOWN = 200
"""Characters of a result that are shown."""
MAX_LINES = 200
"""More tasks than anybody reads: from there on siblings of one actor and state are one line."""
GUIDE = 4
"""Characters that a level of the tree takes."""
CALL_SHOWN, MIN_CALL_SHOWN = 100, 20
"""Characters of a call and its value on a line, at most, and at least: with fewer they stand on the next."""
MIN_ROOM = 20
"""Characters that a line of a deep tree is wrapped at, at least."""
MAX_REASONS = 2
"""Reasons that the line of many tasks gives for which some of them wait for a newer worker."""

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
ABORTED_STATE = ProcessState.ABORTED.value


@dataclass(frozen=True)
class Shown:
    """All that is told of a process."""

    process: Process
    characters: int
    """Of its result, of which `process` has the start."""
    damage: DamagedRecord | None
    """What of the process can't be read, and is left out."""
    lines: Sequence[TaskLine]
    decisions: Mapping[str, Decision]
    links: Mapping[str, Sequence[str]]
    calls: Mapping[str, CallTexts]
    unserved: Mapping[str, str]
    """{actor: why no worker takes its tasks}."""
    pinned: Mapping[str, str]
    """{decision: what it waits for}, of those that are pinned to a version which no live worker runs."""
    now: datetime

    @property
    def is_over(self) -> bool:
        """Whether it has ended, however: a broken one goes on only if an operator restarts it."""
        return self.process.state.value != "running"


def look(resources: Resources, process_id: str, *, whole: bool = False) -> Shown:
    """Read it; texts `whole`, or as much of each as a line may show. Raises ProcessNotFound."""
    from recovery.engine.lookup import not_found
    from recovery.health import versions

    store = resources.store
    found = store.processes.shown(process_id, 2**31 - 1 if whole else RESULT_SHOWN)
    if found is None:
        raise not_found(resources, process_id)
    details = store.process_details
    # Tasks first: a decision that is read has its task's line then, or belongs to one made since.
    lines, calls = details.task_lines(process_id), details.call_texts(process_id, None if whole else READ)
    decisions, links = details.decisions_of(process_id), details.open_links(process_id)
    # And who serves them last: whoever comes meanwhile makes nothing look lonely.
    actors = {decision.actor for decision in decisions.values()}
    unserved = reasons(store.waiting.by_actor(count_served=False, wanted=actors))
    return Shown(
        *found,
        lines,
        decisions,
        links,
        calls,
        unserved,
        versions.pinned_in_vain(resources, decisions.values()),
        store.now(),
    )


def heading(process: Process, characters: int, now: datetime) -> Iterator[Text]:
    """Yield the lines about the process itself. It holds the start of its result, which has so many `characters`."""
    yield line((process.id, "bold"), f"  {process.type}  ", (process.state, STYLES.get(process.state, "")))
    if process.custom_id:
        yield line(f"custom id  {process.custom_id}")
    if process.former_custom_id:
        yield line(f"custom id  {process.former_custom_id}, until process {process.replaced_by} took its place")
    lasted = show_age(seconds_between(process.started_at, process.ended_at or now))
    yield line(f"started    {utc(process.started_at)}, {'took' if process.ended_at else 'for'} {lasted}")
    if process.labels:
        yield line(f"labels     {', '.join(process.labels)}")
    if process.version:
        yield line(f"version    {process.version}{', pinned' if process.pinned else ''}")
    if process.lives:
        last = process.lives[-1]
        tasks = f" from {', '.join(last.tasks)}" if last.tasks else ""
        times = "once" if len(process.lives) == 1 else f"{len(process.lives)} times"
        yield line(f"restarted  {times}, last {utc(last.ended_at)}{tasks}: {last.reason}")
    if process.result is not None:
        more = characters - RESULT_SHOWN
        yield line(f"result     {process.result}{f'… and {more} more characters' if more > 0 else ''}")
    if process.error is not None:
        where = f" in task {process.error.task}" if process.error.task else ""
        yield line(f"error      {process.error.kind}: {without_rule(process.error.message)}{where}", style="red")
        if process.error.code is not None:
            why = f"; not tried again: {process.error.no_retry}" if process.error.no_retry else ""
            was = f" (retries of {process.error.exhausted} exhausted)" if process.error.exhausted else ""
            yield line(f"code       {process.error.code}{was}, reason {process.error.reason}{why}")


def tree(found: Shown, width: int) -> Tree:
    """Return the tasks from the start task on, for lines of `width` characters. Tasks whose parent is missing stand
    beside the start task."""
    children: dict[str | None, list[TaskLine]] = defaultdict(list)
    known = {task.id for task in found.lines}
    for task in found.lines:
        children[task.parent if task.parent in known else None].append(task)
    order = _order(found.decisions)
    root = Tree(Text(count(len(found.lines), "task"), style="bold"))
    # A stack, not a recursion: a chain of deciders may be longer than Python's stack.
    rest = [(root, sorted(children[None], key=lambda task: task.id != found.process.start_task), GUIDE)]
    while rest:
        branch, siblings, indent = rest.pop()
        if len(found.lines) > MAX_LINES:
            siblings = _counted(branch, siblings, children, found)
        for task in siblings:
            room = max(MIN_ROOM, width - indent)
            # Wrapped here, because rich breaks commands in backticks.
            label = Text("\n").join(wrap(_line(task, found, room), room))
            label.overflow = "fold"  # rich cuts what is wider than a branch
            node = branch.add(label)
            if children[task.id]:
                below = sorted(children[task.id], key=lambda task: order.get(task.id, 0))
                rest.append((node, below, indent + GUIDE))
    return root


def _order(decisions: Mapping[str, Decision]) -> dict[str, int]:
    """Return the place of each child in the order in which its parent scheduled it."""
    return {child.id: place for decision in decisions.values() for place, child in enumerate(decision.children)}


def _counted(
    branch: Tree, siblings: Sequence[TaskLine], children: Mapping[str | None, Sequence[TaskLine]], found: Shown
) -> list[TaskLine]:
    """Add one line for each actor and state; what is left to be shown alone: deciders, and what is alone."""
    groups: dict[tuple[str, str], list[TaskLine]] = defaultdict(list)
    for task in siblings:
        groups[task.actor, _shown_state(found.decisions.get(task.id), found.process)].append(task)
    alone = []
    for (actor, state), group in groups.items():
        without = [task for task in group if not children.get(task.id)]
        if len(without) < 2:
            alone += group
            continue
        alone += [task for task in group if children.get(task.id)]
        attempts = Counter(found.decisions[task.id].attempts for task in without if task.id in found.decisions)
        again = sum(tasks for number, tasks in attempts.items() if number > 1)
        more = f", {again:,} of them with more than one attempt" if again else ""
        why = found.unserved.get(actor, "") if state in UNTAKEN_DECISIONS else ""
        refused = Counter(
            reason for task in without if (reason := _refused(found.decisions.get(task.id), found.pinned))
        )
        more += "".join(f", {tasks:,} of them: {reason}" for reason, tasks in refused.most_common(MAX_REASONS))
        branch.add(line(f"{len(without):,} × {actor}  ", (state, STYLES.get(state, "")), more, _hint(why, True)))
    return alone


def _line(task: TaskLine, found: Shown, width: int) -> Text:
    """Return the line of one task. Its call and its value take what is left of the line."""
    decision = found.decisions.get(task.id)
    state = _shown_state(decision, found.process)
    text = line((task.id[:SHORT_ID], "dim"), f"  {task.actor}  ", (state, STYLES.get(state, "")))
    if decision is not None:
        if decision.attempts > 1:
            text.append(f"  {count(decision.attempts, 'attempt')}")
        if decision.timeouts:
            text.append(f"  {count(decision.timeouts, 'timeout')}", style="yellow")
        if decision.version is not None and decision.version != found.process.version:
            text.append(f"  by version {decision.version}", style="yellow")
        if (lost := decision.lost_attempt) is not None:
            text.append(line((f"  attempt {lost.attempt}: its process {lost.how}", "yellow")))
        if age := _age(decision, found.now):
            text.append(line((f"  {age}", "dim")))
    if why := hint(decision, found.unserved, found.links, found.decisions, found.now, found.pinned):
        text.append(line(_hint(why, task.actor in found.unserved or decision is None or decision.id in found.pinned)))
    # The process's own line says why it was aborted.
    if decision is not None and decision.outcome and decision.outcome.error and state != ABORTED_STATE:
        error = decision.outcome.error
        text.append(line((f"  {error.kind}: {error.message.splitlines()[0] if error.message else ''}", "red")))
    left = min(CALL_SHOWN, width - text.cell_len - 2)
    # Where too little is left it goes on below.
    if call := call_line(found.calls.get(task.id), left if left >= MIN_CALL_SHOWN else min(CALL_SHOWN, width)):
        text.append(line((f"  {call}", "dim")))
    return text


def _refused(decision: Decision | None, pinned: Mapping[str, str]) -> str | None:
    return None if decision is None else pinned.get(decision.id) or why_refused(decision)


def _hint(reason: str, is_trouble: bool) -> tuple[str, str]:
    return f"  {reason}" if reason else "", "bold red" if is_trouble else "yellow"


def _age(decision: Decision, now: datetime) -> str:
    """Return how long a task has been in its state, or how long its last attempt took."""
    if decision.state is DecisionState.QUEUED:
        return f"for {show_age(seconds_between(decision.queued_at, now))}"
    if decision.state is DecisionState.WORKING:
        return f"for {show_age(seconds_between(decision.claimed_at, now))} by {decision.worker}"
    outcome = decision.outcome
    if decision.state is DecisionState.FINISHED and decision.claimed_at and outcome and outcome.finished_at:
        return f"took {show_age(seconds_between(decision.claimed_at, outcome.finished_at))}"
    return ""


def _shown_state(decision: Decision | None, process: Process) -> str:
    """Return a task's state as people see it: `aborted` for a task that ended because its process was aborted."""
    error = decision.outcome.error if decision is not None and decision.outcome is not None else None
    if process.state is ProcessState.ABORTED and error is not None and error.kind == ABORTED and error.stack is None:
        return ABORTED_STATE
    return state_of(decision)


def state_of(decision: Decision | None) -> str:
    """Return a task's state as people and programs see it."""
    if decision is None:
        return "no decision"
    failed = decision.outcome is not None and decision.outcome.error is not None
    return "failed" if failed else decision.state.value


def print_history(out: Console, process: Process, repair: RepairNote | None) -> None:
    """Print all restarts that are kept, the oldest first, and the last repair."""
    if repair is not None:
        out.print(f"last repair  {repair.rule}, {utc(repair.at)}, source {repair.source}, by {repair.worker}")
    if not process.lives:
        out.print("never restarted")
    for life in process.lives:
        what = f"operation {life.operation}, " if life.operation is not None else ""
        error = f", {life.error.kind}: {life.error.message}" if life.error is not None else ""
        out.print(f"epoch {life.epoch}  was {life.state}{error}")
        tasks = f" from {', '.join(life.tasks)}" if life.tasks else ""
        out.print(f"  restarted {utc(life.ended_at)}{tasks} by {what}{life.by}: {life.reason}")
