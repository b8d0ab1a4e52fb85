"""What is stored, what the client was told and what the ledgers say must be one story. Each function returns what
contradicts it, in words."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.network.cluster import HEARTBEAT_TIMEOUT, WORKERS, Cluster, told_by
from tests.network.workload import Workload

GAP = 2.0
"""Seconds between two writes of a witness that count as reaching MongoDB all the time: it writes each half second, and
one connection that died costs it one."""
Lines = Sequence[Mapping[str, Any]]


def contradictions(cluster: Cluster, workload: Workload) -> list[str]:
    """What was lost, accepted twice or changed of a workload that has ended, and who was falsely taken for lost."""
    prefix = f"{workload.name}-"
    stored = cluster.ask(lambda database: list(database["processes"].find({"customId": {"$regex": f"^{prefix}"}})))
    ids = {process["_id"] for process in stored}
    decisions = cluster.ask(lambda database: list(database["decisions"].find()))
    of_these = [one for one in decisions if one["_id"].partition("/")[0] in ids]
    ledger = [line for line in cluster.ledger() if line["key"].startswith(prefix)]
    accepted = accepted_runs(of_these)
    return [
        *lost(stored, workload.lines("started")),
        *changed(workload.lines("told", "broken", "differs"), set(accepted.values())),
        *twice(ledger, accepted),
    ]


def accepted_runs(decisions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """{task: the run whose result was accepted}."""
    runs = {}
    for decision in decisions:
        text = decision.get("outcome", {}).get("value")
        value = json.loads(text) if text is not None else None
        if isinstance(value, dict) and "run" in value:
            runs[decision["_id"]] = value["run"]
        elif isinstance(value, list) and len(value) == 2:
            runs[decision["_id"]] = value[1]
    return runs


def lost(stored: Lines, started: Lines) -> Iterator[str]:
    """Processes that were acknowledged and are not there, were started twice, or have not ended."""
    states = {process["_id"]: process["state"] for process in stored}
    for line in started:
        if line["process"] not in states:
            yield f"lost: {line['key']} was acknowledged as {line['process']}"
    for key, count in Counter(process["customId"] for process in stored).items():
        if count > 1:
            yield f"started {count} times: {key}"
    yield from (f"not finished: {process} is {state}" for process, state in states.items() if state != "finished")


def changed(client: Lines, accepted: set[str]) -> Iterator[str]:
    """Results that the client was given and that are wrong, of a run that is not the accepted one, or others later."""
    for line in client:
        if line["event"] == "differs":
            yield f"changed: {line['process']} gave {line['first']}, then {line['now']}"
        elif line["event"] == "broken":
            yield f"broken: {line['process']}: {line['why']}"
        elif not line["right"]:
            yield f"wrong: {line['process']} gave {line['value']}"
        elif not {line["value"]["run"], *line["value"]["saw"]} <= accepted:
            yield f"taken back: {line['process']} gave {line['value']}"


def twice(ledger: Lines, accepted: Mapping[str, str]) -> Iterator[str]:
    """Tasks of which two results were acted upon, or one was accepted that no run gave."""
    ended, saw = set(), defaultdict[str, set[tuple[str, ...]]](set)
    for line in ledger:
        if line["event"] == "ended":
            ended.add(line["run"])
            if "saw" in line:
                saw[line["task"]].add(tuple(line["saw"]))
    yield from (f"of no run that ended: {task} has {run}" for task, run in accepted.items() if run not in ended)
    runs = set(accepted.values())
    for task, seen in saw.items():
        if len(seen) > 1:
            yield f"accepted twice: runs of {task} saw {seen}"
        yield from (f"taken back: {task} saw {run}" for some in seen for run in some if run not in runs)


def false_losses(cluster: Cluster, offsets: Mapping[str, int]) -> list[str]:
    """Workers that were taken for lost though they reached MongoDB for a whole heartbeat timeout; `offsets` are where
    their logs began. Of two workers who requeues what a lost one held speaks of the other one."""
    ahead, found = time.time() - time.monotonic(), []
    for name in WORKERS:
        (other,) = (one for one in WORKERS if one != name)
        reached = [line["at"] for line in cluster.lines(f"witness-{other}")]
        for line in told_by(cluster.log(name), offsets[name]):
            at = datetime.fromisoformat(line["time"]).timestamp() - ahead - cluster.shifts[name]
            if line["message"].startswith("WORKER_LOST: ") and reached_always(reached, at):
                found.append(f"false: at {line['time']} {name} took {other} for lost: {line['message']}")
    return found


def reached_always(reached: Sequence[float], until: float) -> bool:
    """Whether a witness reached MongoDB again and again for a heartbeat timeout before a moment."""
    inside = [at for at in reached if until - HEARTBEAT_TIMEOUT < at < until]
    steps = pairwise([until - HEARTBEAT_TIMEOUT, *inside, until])
    return all(later - earlier < GAP for earlier, later in steps)


def log_offsets(cluster: Cluster) -> dict[str, int]:
    """Where the workers' logs end now."""
    return {name: cluster.log(name).stat().st_size for name in WORKERS}
