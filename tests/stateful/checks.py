"""The six invariants (docs/records.md), on the documents as they are: none of the product's own queries or
rules.

`Memory` holds what must be so after every step, and what was seen and must stay so; `ends` what a process has come to
when all is quiet.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.database import Database

from recovery.limits import WAITS_FOR
from tests.stateful.cluster import LONGEST
from tests.stateful.documents import Documents, read_all
from tests.stateful.programs import HOLDER_ONLY

LIVE = ("delayed", "queued", "working")
KINDS = ("processes", "tasks", "decisions", "graphs")
OURS = ("TaskTimeout", "Aborted")
"""Errors that no attempt brought."""

Life = tuple[str, int]
"""A decision, and how often its task was restarted, in which epoch of those that an operator began: what ends once at
the most."""
EPOCH = 100
"""Lives of a decision in one epoch, at the most."""


def read(database: Database[Any]) -> Documents:
    """All records of processes, in one query; while it runs nobody writes."""
    return read_all(database, (*KINDS, "interruptions"))


@dataclass
class Memory:
    """What was seen, and must never be seen otherwise."""

    ends: dict[tuple[str, int, int], Any] = field(default_factory=dict)
    """{(process, epoch, how often it was reopened): how it ended}"""
    over: dict[str, str] = field(default_factory=dict)
    """{process: finished or aborted}: for good."""
    outcomes: dict[Life, Any] = field(default_factory=dict)
    """{life of a decision: the outcome and children that were accepted}"""
    accepted: dict[Life, set[str]] = field(default_factory=lambda: defaultdict(set))
    """{life of a decision: passes whose holder was told that its result is taken}"""
    lives: Counter[str] = field(default_factory=Counter)
    """{decision: how often its task was restarted}"""
    restarts: Counter[str] = field(default_factory=Counter)
    """{process: how often an operator began to restart it, or tasks of it}"""
    of_all: list[frozenset[str]] = field(default_factory=list)
    """Of each restart of all that failed: the processes that there were when an operator began it. While it is carried
    out others may be started, and fail."""
    aborts: set[str] = field(default_factory=set)
    """Processes that an operator began to abort."""
    settled: set[str] = field(default_factory=set)
    """Processes whose abort was told to be done."""
    excused: set[str] = field(default_factory=set)
    """Processes of which more may be listed for operators than is broken: whoever listed it just before it breaks the
    process, or had it run again just before it takes it off the list, was cut off in between. The next restart finds
    that out."""
    epochs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """{process: epochs that an operator began, to have tasks of it done again}"""
    wrong: list[str] = field(default_factory=list)
    _listing: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """{thread: processes that it did the first half of that for}"""

    def told(self, step: str, args: tuple[Any, ...], result: Any) -> None:
        """Record what a step of the store returned to whoever claimed, finished, restarted or listed a task."""
        for decision, outcome in _accepted(step, args, result):
            life = self.life(decision.id, decision.epoch, decision.restarts)
            self.accepted[decision.id, life].add(outcome.pass_key)
        for decision in _claimed(step, result):
            self._is_undecided(step, decision)
        if step == "Redos.begin" and result:
            self.epochs[args[0].id].append(args[0].epoch + 1)
            self.over.pop(args[0].id, None)
        elif step == "Interruptions.add":
            self._listing[threading.get_ident()].add(args[0].process_id)
        elif step == "RestartUpdates.reopen_processes":
            self._listing[threading.get_ident()].update(process.id for process in args[0])

    def _is_undecided(self, step: str, claimed: Any) -> None:
        life = (claimed.id, self.life(claimed.id, claimed.epoch, claimed.restarts))
        if life in {**self.accepted, **self.outcomes}:
            self.wrong.append(f"{step}: {claimed.id} was finished, and is claimed again")

    def life(self, key: str, epoch: int, restarts: int | None) -> int:
        """Which life of a decision it is; each epoch that an operator began is a new one of them all."""
        begun = [one for one in self.epochs[key.partition("/")[0]] if one <= epoch]
        return EPOCH * max(begun, default=0) + (restarts or 0)

    def ended(self, thread: int | None, cut_off: bool) -> None:
        """Hear that what a thread did is over."""
        listing = self._listing.pop(thread or 0, set())
        if cut_off:
            self.excused |= listing

    def may_be_listed(self, process_id: str) -> bool:
        """Whether more may be listed of a process than is broken: see `excused`; or whoever is at that pauses."""
        return process_id in self.excused or any(process_id in under_way for under_way in self._listing.values())

    def restarts_of(self, process_id: str) -> int:
        """How often it may have been restarted, at most."""
        return self.restarts[process_id] + sum(process_id not in there for there in self.of_all)

    def check(self, found: Documents) -> None:
        """What holds after every step."""
        assert not self.wrong, self.wrong
        _have_deadlines(found)
        self._once_decided(found["decisions"])
        self._once_ended(found["processes"])
        for graph in found["graphs"].values():
            finished = graph["finished"]
            assert len(set(finished)) == len(finished), f"applied twice: {graph}"
        for line in live(found) if self.settled else ():
            assert line.split()[1].partition("/")[0] not in self.settled, f"live, and its process is aborted: {line}"
        _are_listed(found)

    def _once_decided(self, decisions: dict[str, dict[str, Any]]) -> None:
        for key, document in decisions.items():
            if document["state"] == "waiting" and document["epoch"] < max(
                self.epochs[key.partition("/")[0]], default=0
            ):
                continue  # dropped, and inserted once more by who was late: nobody's any more
            life = self.life(key, document["epoch"], document.get("restarts"))
            if life != self.lives[key]:
                self._restarted(key, life, document)
            if document["state"] == "finished":
                seen = self.outcomes.setdefault((key, life), _of(document))
                assert seen == _of(document), f"{key} was decided anew: {seen} became {_of(document)}"
                self._rightly_taken((key, life), seen, document)
            else:
                assert (key, life) not in self.outcomes, f"{key} was decided, and is {document['state']}"
        for (key, life), passes in self.accepted.items():
            assert len(passes) == 1, f"{key}: two attempts were told that theirs is the result: {passes}"
            # What was taken in an epoch before may have been dropped, or put back, before anybody saw it here.
            of_now = life // EPOCH == max(self.epochs[key.partition("/")[0]], default=0) and life == self.lives[key]
            if (outcome := self.outcomes.get((key, life))) is not None or of_now:
                assert outcome and outcome["pass"] in passes, f"{key}: accepted was {passes}, and there is {outcome}"

    def _restarted(self, key: str, life: int, document: dict[str, Any]) -> None:
        before = self.lives[key]
        again = life // EPOCH > before // EPOCH
        assert before < life and life % EPOCH <= self.restarts_of(key.partition("/")[0]), (
            f"nobody restarted it: {document}"
        )
        ended = self.outcomes.get((key, before))
        assert again or ended is None or (ended["error"] and not document.get("fallible")), f"it was well: {ended}"
        self.lives[key] = life

    def _rightly_taken(self, life: Life, seen: dict[str, Any], document: dict[str, Any]) -> None:
        if seen["error"] and seen["error"]["kind"] in OURS:
            assert life not in self.accepted, f"an attempt was told that its result is taken: {document}"
        elif document["actor"] == HOLDER_ONLY or seen["error"]:
            assert seen["pass"] == document["pass"], f"taken from one that did not hold its task: {document}"

    def _once_ended(self, processes: dict[str, dict[str, Any]]) -> None:
        for key, document in processes.items():
            state, reopened = document["state"], document.get("reopened") or 0
            life = (key, document.get("epoch") or 0, reopened)
            assert self.over.get(key, state) == state, f"process {key} was {self.over[key]}, and is {state}"
            assert reopened <= self.restarts_of(key) + len(self.epochs[key]), f"nobody set it running again: {document}"
            if state == "running":
                assert life not in self.ends, f"process {key} had ended: {self.ends[life]}"
                continue
            end = {name: document.get(name) for name in ("state", "result", "error")}
            assert self.ends.setdefault(life, end) == end, f"process {key} ended twice"
            if state != "broken":
                self.over[key] = state
            assert state != "aborted" or key in self.aborts, f"nobody aborted it: {document}"


def _accepted(step: str, args: tuple[Any, ...], result: Any) -> list[tuple[Any, Any]]:
    """Return the decisions whose result the store accepted in this step, each with its outcome."""
    if step == "Decisions.finish":
        return [(decision, decision.outcome) for decision in args[0] if decision.id in result]
    return []


def _claimed(step: str, result: Any) -> list[Any]:
    """Return the decisions that this step claimed."""
    return list(result) if step in ("Decisions.claim", "Decisions.claim_ready") else []


def live(found: Documents) -> list[str]:
    """Records that somebody has to look at again, or that have not ended."""
    return [
        f"{name} {key} {document.get('state', '')}"
        for name in KINDS
        for key, document in found[name].items()
        if "recoveryTime" in document or document.get("state") in (*LIVE, "running")
    ]


def _are_listed(found: Documents) -> None:
    """What a process is broken for is listed, as long as it is: whoever breaks it lists that before, and whoever has it
    run again takes it off the list after. That holds wherever one of them is cut off."""
    for key, process in found["processes"].items():
        if process["state"] != "broken":
            continue
        listed, failed = of_process(found["interruptions"], key), found["graphs"].get(key, {}).get("failed", {})
        task = process["error"].get("task")
        assert listed, f"broken, and no operator would learn it: {process}"
        assert task or "start" in listed, f"broken as a whole, and not listed for that: {process}, {listed}"
        assert task not in failed or task in listed, f"broken for {task}, and not listed for it: {process}, {listed}"


def _have_deadlines(found: Documents) -> None:
    processes, graphs, decisions = found["processes"], found["graphs"], found["decisions"]
    lacking = [d for d in processes.values() if d["state"] == "running" and not d.get("recoveryTime")]
    lacking += [d for d in decisions.values() if d["state"] in LIVE and not d.get("recoveryTime")]
    for key, graph in graphs.items():
        is_open = graph["notFinished"] and not graph.get("failed") and not graph.get("aborted")
        if is_open and not graph.get("recoveryTime"):
            lacking.append(graph)
        # Known to the graph as open, and decided: somebody has to apply it. Of a broken process the siblings go on.
        # While it is to be done again from some task the process's deadline stands for what its old graph has open.
        process = processes[key]
        old = process.get("redo") and graph["epoch"] < process["epoch"]
        for task in graph["notFinished"] if process["state"] in ("running", "broken") and not old else ():
            decision = decisions.get(f"{key}/{task}")
            if decision is not None and decision["state"] == "finished" and not decision.get("recoveryTime"):
                known = task in graph.get("failed", {}) and failed(decision)
                if not (known and graph.get("restarted", {}).get(task) == decision.get("restarts")):
                    lacking.append(decision)
    assert not lacking, f"live, and nobody would ever look at it again: {lacking}"
    now = datetime.now(UTC)  # the servers are on this machine
    for collection in (processes, graphs, decisions):
        for document in collection.values():
            if (deadline := document.get("recoveryTime")) is not None:
                process = processes[document["_id"].partition("/")[0]]
                longest = 1.2 * WAITS_FOR if document.get("state") == "queued" else LONGEST
                farthest = now + timedelta(seconds=longest) + 2 * (now - process["startedAt"])
                assert deadline < farthest, f"at {now} a deadline in the far future: {document}"


def failed(decision: dict[str, Any]) -> bool:
    """Whether a decision is an error for which its process breaks."""
    return decision["state"] == "finished" and "error" in decision["outcome"] and not decision.get("fallible")


def _of(document: dict[str, Any]) -> dict[str, Any]:
    """What an accepted decision says, whenever it was written."""
    outcome = document["outcome"]
    said = {name: outcome.get(name) for name in ("pass", "value", "waits", "error")}
    more = {"children": [child["_id"] for child in document.get("children", ())], "attempts": document.get("attempts")}
    return said | more


def of_process(documents: dict[str, dict[str, Any]], process_id: str) -> dict[str, dict[str, Any]]:
    """{task: document} of a process."""
    prefix = f"{process_id}/"
    return {key.removeprefix(prefix): document for key, document in documents.items() if key.startswith(prefix)}
