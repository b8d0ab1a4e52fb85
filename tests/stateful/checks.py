"""The invariants of design §1, on the documents as they are: none of the product's own queries or rules."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database

from tests.stateful.cluster import LONGEST
from tests.stateful.programs import HOLDER_ONLY, errors, evaluate

LIVE = ("delayed", "queued", "working")
KINDS = ("processes", "tasks", "decisions", "graphs")

Documents = dict[str, dict[str, dict[str, Any]]]
"""{collection: {id: document}}"""


def read(database: Database[Any]) -> Documents:
    """All records of processes, in one query; while it runs nobody writes."""
    first, *others = KINDS
    union = [{"$unionWith": {"coll": name, "pipeline": _marked(name)}} for name in others]
    found: Documents = {name: {} for name in KINDS}
    for document in database[first].aggregate([*_marked(first), *union]):
        found[document.pop("_of")][document["_id"]] = document
    return found


def _marked(name: str) -> list[dict[str, Any]]:
    return [{"$set": {"_of": {"$literal": name}}}]


@dataclass
class Memory:
    """What was seen, and must never be seen otherwise."""

    ends: dict[str, Any] = field(default_factory=dict)
    """{process: how it ended}"""
    outcomes: dict[str, Any] = field(default_factory=dict)
    """{decision: the outcome and children that were accepted}"""
    accepted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """{decision: passes whose holder was told that its result is taken}"""

    def told(self, step: str, args: tuple[Any, ...], result: Any) -> None:
        """Hear what the store told whoever finished a task."""
        if step in ("Decisions.finish", "Decisions.finish_and_claim"):
            yes = result[0] if isinstance(result, tuple) else result
            if yes:
                self.accepted[args[0].id].add(args[1].pass_key)

    def check(self, found: Documents) -> None:
        """What holds after every step."""
        _have_deadlines(found)
        self._once_decided(found["decisions"])
        self._once_ended(found["processes"])
        for graph in found["graphs"].values():
            finished = graph["finished"]
            assert len(set(finished)) == len(finished), f"applied twice: {graph}"

    def _once_decided(self, decisions: dict[str, dict[str, Any]]) -> None:
        for key, document in decisions.items():
            if document["state"] == "finished":
                seen = self.outcomes.setdefault(key, _of(document))
                assert seen == _of(document), f"{key} was decided anew: {seen} became {_of(document)}"
                if document["actor"] == HOLDER_ONLY or seen["error"]:
                    assert seen["pass"] == document["pass"], f"taken from one that did not hold its task: {document}"
            else:
                assert key not in self.outcomes, f"{key} was decided, and is {document['state']}"
        for key, passes in self.accepted.items():
            assert len(passes) == 1, f"{key}: two attempts were told that theirs is the result: {passes}"
            assert self.outcomes[key]["pass"] in passes, f"{key}: accepted was {passes}, and there is {decisions[key]}"

    def _once_ended(self, processes: dict[str, dict[str, Any]]) -> None:
        for key, document in processes.items():
            if document["state"] == "running":
                assert key not in self.ends, f"process {key} had ended: {self.ends[key]}"
            else:
                end = {name: document.get(name) for name in ("state", "result", "error")}
                assert self.ends.setdefault(key, end) == end, f"process {key} ended twice"


def check_end(found: Documents, process_id: str, program: Any) -> None:
    """What holds of a process when all is quiet. Its end is that of the program in Python."""
    process, graph = found["processes"][process_id], found["graphs"][process_id]
    decisions, tasks = (_of_process(found[name], process_id) for name in ("decisions", "tasks"))
    assert decisions.keys() == tasks.keys(), "a decision for each task, and no other"
    children = {child["_id"] for decision in decisions.values() for child in decision.get("children", ())}
    assert children | {"start"} == tasks.keys(), "every child of an accepted decision, and no other"
    for document in (process, graph, *decisions.values()):
        assert "recoveryTime" not in document, f"live after all: {document}"
    decided = {task for task, decision in decisions.items() if decision["state"] == "finished"}
    failed = {task for task in decided if "error" in decisions[task]["outcome"]}
    assert sorted(graph["finished"]) == sorted(decided - failed), "applied what was decided, each once"
    if possible := errors(program):
        assert process["state"] == "broken", process
        assert process["error"]["message"] in possible, process
        assert failed == graph["failed"].keys(), graph
        assert {decision["state"] for decision in decisions.values()} <= {"finished", "waiting"}
        return
    assert process["state"] == "finished", process
    assert (decided, graph["notFinished"], graph["links"]) == (set(tasks), {}, {}), graph
    assert json.loads(process["result"]) == evaluate(program)


def live(found: Documents) -> list[str]:
    """Records that somebody has to look at again, or that have not ended."""
    return [
        f"{name} {key} {document.get('state', '')}"
        for name in KINDS
        for key, document in found[name].items()
        if "recoveryTime" in document or document.get("state") in (*LIVE, "running")
    ]


def _have_deadlines(found: Documents) -> None:
    processes, graphs, decisions = found["processes"], found["graphs"], found["decisions"]
    lacking = [d for d in processes.values() if d["state"] == "running" and not d.get("recoveryTime")]
    lacking += [d for d in decisions.values() if d["state"] in LIVE and not d.get("recoveryTime")]
    for key, graph in graphs.items():
        running = processes[key]["state"] == "running"
        if graph["notFinished"] and not graph.get("failed") and not graph.get("recoveryTime"):
            lacking.append(graph)
        # Known to the graph as open, and decided: somebody has to apply it.
        for task in graph["notFinished"].keys() - graph.get("failed", {}).keys() if running else ():
            decision = decisions.get(f"{key}/{task}")
            if decision is not None and decision["state"] == "finished" and not decision.get("recoveryTime"):
                lacking.append(decision)
    assert not lacking, f"live, and nobody would ever look at it again: {lacking}"
    now = datetime.now(UTC)  # the servers are on this machine
    for document in _all((processes, graphs, decisions)):
        deadline = document.get("recoveryTime")
        if deadline is not None:
            process = processes[document["_id"].partition("/")[0]]
            farthest = now + timedelta(seconds=LONGEST) + 2 * (now - process["startedAt"])
            assert deadline < farthest, f"at {now} a deadline in the far future: {document}"


def _of(document: dict[str, Any]) -> dict[str, Any]:
    """What an accepted decision says, whenever it was written."""
    outcome = document["outcome"]
    said = {name: outcome.get(name) for name in ("pass", "value", "waits", "error")}
    return said | {"children": [child["_id"] for child in document.get("children", ())]}


def _of_process(documents: dict[str, dict[str, Any]], process_id: str) -> dict[str, dict[str, Any]]:
    prefix = f"{process_id}/"
    return {key.removeprefix(prefix): document for key, document in documents.items() if key.startswith(prefix)}


def _all(collections: Iterable[dict[str, dict[str, Any]]]) -> Iterable[dict[str, Any]]:
    for collection in collections:
        yield from collection.values()
