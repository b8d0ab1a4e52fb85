"""What ties the model to the code: its worlds as records of MongoDB, and records as its worlds.

The task S is a process's start task, and C the first that it schedules. Of a world only what is written is compared:
where the workers are, and what waits in Redis, is theirs alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from recovery.records import (
    Child,
    Decision,
    DecisionState,
    ErrorInfo,
    Graph,
    Outcome,
    Process,
    ProcessState,
    Record,
    Task,
    Worker,
)
from recovery.records.ids import START_TASK, child_task_id, record_id
from recovery.store import Store, schema
from tests.documents import database_of
from tests.model.protocol import World, explore, steps

TASKS = {"S": START_TASK, "C": child_task_id(START_TASK, 0, 0)}
NAMES = {task: name for name, task in TASKS.items()}
CHILD = Child(id=TASKS["C"], actor="child", args="[[],{}]")
ACTORS = {"S": "parent", "C": "child"}
ENDS = {"": ProcessState.RUNNING, "finished": ProcessState.FINISHED, "broken": ProcessState.BROKEN}
STATES = {"running": "working", "error": "finished"}
"""Of the model's states those that have another name in the records."""
HOLDER = "w#1"


class Written(NamedTuple):
    """What is written of a world: how the process ended, the graph, and the state of each task."""

    ended: str
    graph: bool
    open: frozenset[str]
    done: frozenset[str]
    S: str
    C: str


def written(world: World) -> Written:
    """The part of a world that is in MongoDB, without passes."""
    return Written(world.ended, world.graph, world.open, world.done, world.S.state, world.C.state)


def worlds() -> dict[World, None]:
    """All that two workers can come to, each once for what is written, passes included."""
    reached, _ = explore(2)
    return dict.fromkeys(world._replace(queue=frozenset(), workers=(), accepted=(0, 0), lost=0) for world in reached)


def changes() -> dict[tuple[Written, Written], set[str]]:
    """{what is written before and after a step of the model: the names of the steps that do that}."""
    found: dict[tuple[Written, Written], set[str]] = defaultdict(set)
    for world in explore(2)[0]:
        for label, after, _ in steps(world):
            found[written(world), written(after)].add(label[0])
    return found


def pass_of(number: int) -> str:
    """A pass key for one of the model's numbers."""
    return f"{number:032x}"


def outcome(error: bool, pass_key: str, value: str = "1") -> Outcome:
    return Outcome(
        pass_key=pass_key,
        value=None if error else value,
        error=ErrorInfo(kind="ValueError", message="no") if error else None,
    )


def records(world: World, process_id: str, store: Store) -> list[Record]:
    """The records of a process in this world, with all deadlines past; to be saved with `put`."""
    past = store.now() - timedelta(hours=1)
    made: list[Record] = [
        Process(
            id=process_id, type="parent", args="[[],{}]", state=ENDS[world.ended], started_at=past,
            recovery_time=past if not world.ended else None,
        )
    ]  # fmt: skip
    if world.graph:
        not_finished = dict.fromkeys((TASKS[name] for name in world.open), past)
        finished = tuple(TASKS[name] for name in sorted(world.done))
        made.append(
            Graph(id=process_id, not_finished=not_finished, finished=finished, touched_at=past, recovery_time=past)
        )
    for name in "SC":
        state, number = getattr(world, name)
        if state == "-":
            continue
        key = record_id(process_id, TASKS[name])
        made.append(Task(id=key, actor=ACTORS[name], args="[[],{}]"))
        over = state in ("finished", "error")
        made.append(
            Decision(
                id=key,
                actor=ACTORS[name],
                state=DecisionState(STATES.get(state, state)),
                # Of what is finished the worst case: under a pass that is asked for.
                pass_key=pass_of(number or 1) if state != "waiting" else None,
                worker=HOLDER if over or state == "running" else None,
                attempts=1 if state in ("running", "delayed", "finished", "error") else 0,
                enqueued_at=past if state != "waiting" else None,
                queued_at=past if state != "waiting" else None,
                recovery_time=past if state != "waiting" else None,
                outcome=outcome(state == "error", pass_of(99)) if over else None,
                children=(CHILD,) if name == "S" and state == "finished" else (),
            )
        )
    return made


class Read(NamedTuple):
    """What is written of a process, and {task: the pass of its decision} of what is queued or working."""

    written: Written
    passes: Mapping[str, str]


NOTHING = Read(Written("", False, frozenset(), frozenset(), "-", "-"), {})


def read(store: Store) -> dict[str, Read]:
    """{process: what is written of it}, of all that are there, by raw queries."""
    found = {
        name: list(database_of(store)[name].find()) for name in (schema.PROCESSES, schema.GRAPHS, schema.DECISIONS)
    }
    ends = {document["_id"]: document["state"] for document in found[schema.PROCESSES]}
    graphs = {document["_id"]: document for document in found[schema.GRAPHS]}
    states: dict[str, dict[str, str]] = defaultdict(dict)
    passes: dict[str, dict[str, str]] = defaultdict(dict)
    for document in found[schema.DECISIONS]:
        process_id, _, task = document["_id"].partition("/")
        states[process_id][NAMES[task]] = _state(document)
        if document["state"] in ("queued", "working"):
            passes[process_id][NAMES[task]] = document["pass"]
    return {
        process_id: Read(
            Written(
                next(name for name, state in ENDS.items() if state == end),
                process_id in graphs,
                frozenset(NAMES[task] for task in graphs.get(process_id, {}).get("notFinished", ())),
                frozenset(NAMES[task] for task in graphs.get(process_id, {}).get("finished", ())),
                states[process_id].get("S", "-"),
                states[process_id].get("C", "-"),
            ),
            passes[process_id],
        )
        for process_id, end in ends.items()
    }


def _state(document: Mapping[str, Any]) -> str:
    if document["state"] == "finished":
        return "error" if "error" in document["outcome"] else "finished"
    state: str = document["state"]
    return "running" if state == "working" else state


def worker() -> Worker:
    """Who serves both actors."""
    return Worker(id="w", name="w", host="here", pid=1, pid_started=1, queues=tuple(ACTORS.values()))
