"""What a process has come to when all is quiet: its program's value, an error that is right, or its abort."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tests.stateful.checks import Memory, failed, of_process
from tests.stateful.cluster import AWAY, BROKEN_LATE, LATE, LIMIT
from tests.stateful.documents import Documents
from tests.stateful.programs import FORCED, LIMITED, Part, evaluate, message, part, plain

Found = dict[str, dict[str, Any]]


def check_end(found: Documents, process_id: str, program: Any, memory: Memory, mended: bool = False) -> None:
    """What holds of a process when all is quiet. `mended`: what was to be mended was, and all that was listed for
    operators was restarted then."""
    process, graph = found["processes"][process_id], found["graphs"][process_id]
    decisions, tasks = (of_process(found[name], process_id) for name in ("decisions", "tasks"))
    listed = of_process(found["interruptions"], process_id)
    exact = mended or not memory.may_be_listed(process_id)
    for document in (process, graph, *decisions.values()):
        assert "recoveryTime" not in document, f"live after all: {document}"
    assert {decision["state"] for decision in decisions.values()} <= {"finished", "waiting"}
    if process["state"] == "aborted":
        assert process_id in memory.aborts
        assert graph.get("aborted") is True, graph
        assert not (exact and listed), listed
        return
    children = {child["_id"] for decision in decisions.values() for child in decision.get("children", ())}
    if memory.epochs[process_id]:
        # What an attempt had scheduled that is done again, and whoever wrote that was late and cut off.
        strays = {task for task, one in decisions.items() if one["state"] == "waiting"} - children - {"start"}
        decisions = {task: one for task, one in decisions.items() if task not in strays}
        tasks = {task: one for task, one in tasks.items() if task in decisions}
    assert decisions.keys() == tasks.keys(), "a decision for each task, and no other"
    assert children | {"start"} == tasks.keys(), "every child of an accepted decision, and no other"
    decided = {task: decision for task, decision in decisions.items() if decision["state"] == "finished"}
    wrong = {task for task, decision in decided.items() if failed(decision)}
    assert sorted(graph["finished"]) == sorted(decided.keys() - wrong), "applied what was decided, each once"
    assert graph.get("failed", {}).keys() == wrong, graph
    failures = _failures(decided, tasks, mended)
    if wrong:
        _is_rightly_broken(process, graph, decisions, wrong)
        whole = {"start"} if "task" not in process["error"] else set()
        assert listed.keys() >= wrong | whole, f"{wrong} failed, and an operator would learn of {listed}"
        assert not exact or listed.keys() == wrong | whole, f"only {wrong} failed, and listed are {listed}"
        return
    assert (decided.keys(), graph["notFinished"], graph["links"]) == (tasks.keys(), {}, {}), graph
    if process["state"] == "broken":
        assert process["error"]["kind"] == "ProcessTimeout", process
        assert process["type"] == BROKEN_LATE
        assert process["endedAt"] - process["startedAt"] >= timedelta(seconds=LATE)
        assert "start" in listed
        assert not exact or listed.keys() == {"start"}, listed
        return
    assert process["state"] == "finished", process
    assert not (exact and listed), f"nothing is wrong, and an operator would look at {listed}"
    assert plain(json.loads(process["result"])) == evaluate(program, failures)


def _failures(decided: Found, tasks: Found, mended: bool) -> dict[Part, str]:
    """{part of the program: the text of its error}, of what was decided with one; each is checked to be right."""
    failures: dict[Part, str] = {}
    parts: set[Part] = set()
    for task, decision in decided.items():
        node = json.loads(tasks[task]["args"])[0][0]
        assert part(node) not in parts, f"done by two tasks: {node}"
        parts.add(part(node))
        outcome, retries = decision["outcome"], decision.get("retry", {}).get("count", 0)
        assert retries <= node["away"], f"a failure was counted twice: {decision}"
        assert decision["attempts"] >= retries + decision["timeouts"], f"counted, and never begun: {decision}"
        if (error := outcome.get("error")) is None:
            assert node["raises"] != "always", f"it can't end well: {decision}"
            assert retries == node["away"], f"it failed {node['away']} times, and {retries} were counted: {decision}"
            continue
        failures[part(node)] = error["message"]
        if error["kind"] == "TaskTimeout":
            assert decision["actor"] in (LIMITED, FORCED)
            assert outcome["finishedAt"] - decision["enqueuedAt"] >= timedelta(seconds=LIMIT), f"too early: {decision}"
        elif error["message"] == AWAY:
            # Its own time comes before the next retry; or years went by, and with them the policy's total.
            in_time = decision["actor"] not in (LIMITED, FORCED) and outcome["finishedAt"] < decision["retry"]["until"]
            assert not in_time and retries < node["away"], decision
        else:
            may = node["raises"] == "always" or (node["raises"] and not (mended and failed(decision)))
            assert (may, error["message"]) == (True, message(node)), decision
    return failures


def _is_rightly_broken(process: dict[str, Any], graph: dict[str, Any], decisions: Found, wrong: set[str]) -> None:
    assert process["state"] == "broken", process
    error = process["error"]
    if (task := error.get("task")) in wrong:
        assert error["message"] == decisions[task]["outcome"]["error"]["message"], process
    elif task is not None:
        assert decisions[task].get("restarts"), f"broken for a task that has not failed: {process}"
    # Siblings go on: what has not ended waits for what failed.
    for task in graph["notFinished"].keys() - wrong:
        assert graph["links"].get(task), f"{task} waits for nothing, and is {decisions[task]['state']}: {graph}"
