"""One way to break a process for each rule: real processes, brought half way, whose records are then changed by hand.

Nothing of our own code makes a fault: raw updates past the validators, as a restored backup or another program would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recovery import Recovery
from recovery.engine.operators.abort import abort_process
from recovery.records import OrderKind, Outcome, ProcessState
from recovery.records.ids import new_pass
from recovery.rules import Rule
from tests.documents import database_of
from tests.ordered import begin_removal, order
from tests.queues import polled_and_empty
from tests.store import single
from tests.world import World, by_message_only

HOUR = timedelta(hours=1)
RESULT = '{"total":5}'
FINISHED, BROKEN = ProcessState.FINISHED, ProcessState.BROKEN


def make_app(world: World) -> Recovery:
    """`order`: three parts, `merge` over them, and `report` on that; `later` waits an hour, `limited` has time-outs."""
    app = world.app

    @app.actor(worker_timeout=600)
    def part(number: int) -> int:
        return number * number

    @app.actor()
    def report(total: int) -> dict[str, int]:
        return {"total": total}

    @app.actor()
    def merge(parts: list[int]) -> Any:
        return report.schedule(sum(parts))

    @app.process(idle_timeout=600)
    def order(count: int) -> Any:
        return merge.schedule([part.schedule(number) for number in range(count)])

    @app.process(idle_timeout=600)
    def later() -> Any:
        return report.options(delay=3600).schedule(5)

    @app.actor(task_timeout=1800)
    def limited(total: int) -> dict[str, int]:
        return {"total": total}

    @app.process(idle_timeout=600, process_timeout=7200)
    def time_limit() -> Any:
        return limited.schedule(5)

    @app.actor()
    def refuse(number: int) -> int:
        raise ValueError(f"number {number} is refused")

    @app.process(idle_timeout=600)
    def refusing() -> Any:
        return [refuse.schedule(1), refuse.schedule(2)]

    return app


@dataclass
class Broken:
    """A process of the world whose records are changed by raw updates."""

    world: World
    id: str

    @property
    def db(self) -> Any:
        return database_of(self.world.store)

    def change(self, collection: str, key: str, update: Any) -> None:
        """Change a record that must be there, past the validator."""
        found = self.db.command(
            "update", collection, updates=[{"q": {"_id": key}, "u": update}], bypassDocumentValidation=True
        )
        assert found["n"] == 1, f"{collection} has no {key}"

    def remove(self, collection: str, key: str) -> None:
        assert self.db[collection].delete_one({"_id": key}).deleted_count == 1

    def decision(self, actor: str, state: str | None = None) -> str:
        """The first decision of this actor, in this state."""
        of_it = {"_id": {"$regex": f"^{self.id}/"}, "actor": actor, **({"state": state} if state else {})}
        found = self.db["decisions"].find_one(of_it, sort=[("_id", 1)])
        assert found is not None, f"no {state or ''} decision of {actor}"
        return str(found["_id"])

    def task(self, actor: str, state: str | None = None) -> str:
        return self.decision(actor, state).partition("/")[2]

    def drop_messages(self, queue: str) -> None:
        self.world.redis.delete(queue)

    def settle(self) -> None:
        """As if the last change of the graph, start, end and results had been an hour ago; deadlines stay."""
        past = self.world.store.now() - HOUR
        self.db["graphs"].update_many({"_id": self.id}, {"$set": {"touchedAt": past}})
        self.db["processes"].update_many({"_id": self.id}, {"$set": {"startedAt": past}})
        self.db["processes"].update_many({"_id": self.id, "endedAt": {"$exists": True}}, {"$set": {"endedAt": past}})
        decided = {"_id": {"$regex": f"^{self.id}/"}, "state": "finished"}
        self.db["decisions"].update_many(decided, {"$set": {"outcome.finishedAt": past}})

    def look_now(self) -> None:
        """The next scan of each kind looks at this process."""
        past = self.world.store.now() - timedelta(seconds=1)
        for name in ("graphs", "processes"):
            self.db[name].update_many(
                {"_id": self.id, "recoveryTime": {"$exists": True}}, {"$set": {"recoveryTime": past}}
            )


@dataclass(frozen=True)
class Fault:
    """What is done to a process, and how it ends. `end` None: it does not, before somebody starts what is missing."""

    rule: Rule
    make: Callable[[Broken], None]
    stage: str = "half way"
    process: str = "order"
    end: ProcessState | None = FINISHED
    error: str | None = None
    result: str = RESULT


def claim(broken: Broken, worker: str) -> str:
    """Have a worker, which does not exist, claim a part; its message is taken."""
    key = broken.decision("part", "queued")
    queued = broken.world.store.decisions.get(key)
    assert queued is not None and queued.pass_key is not None
    assert single.claim(broken.world.store, queued.actor, key, queued.pass_key, worker, 600)
    return key


def overdue(broken: Broken, key: str) -> None:
    broken.change("decisions", key, {"$set": {"recoveryTime": broken.world.store.now() - HOUR}})


def work_timeout(broken: Broken) -> None:
    overdue(broken, claim(broken, "silent#1"))


def worker_lost(broken: Broken) -> None:
    claim(broken, "gone#1")
    silent_since = {"recoveryTime": broken.world.store.now() - HOUR}
    broken.db["workers"].insert_one(
        {"_id": "gone", "name": "gone@there", "host": "there", "pid": 1, "pidStarted": 1, **silent_since}
    )


def task_timeout(broken: Broken) -> None:
    past = broken.world.store.now() - HOUR
    broken.change("decisions", broken.decision("limited"), {"$set": {"enqueuedAt": past, "recoveryTime": past}})


def due(broken: Broken) -> None:
    past = broken.world.store.now() - HOUR
    broken.change("decisions", broken.decision("report", "delayed"), {"$set": {"eta": past, "recoveryTime": past}})


def deadline_missing(broken: Broken) -> None:
    broken.change("decisions", claim(broken, "silent#1"), {"$unset": {"recoveryTime": 1}})


def queued_long_ago(broken: Broken) -> None:
    for key in [d["_id"] for d in broken.db["decisions"].find({"state": "queued"})]:
        past = broken.world.store.now() - HOUR
        broken.change("decisions", key, {"$set": {"queuedAt": past, "enqueuedAt": past, "recoveryTime": past}})


def servers_were_down(broken: Broken) -> None:
    queued_long_ago(broken)
    broken.db["queues"].delete_many({})


def no_actors(broken: Broken) -> None:
    queued_long_ago(broken)
    broken.db["queues"].delete_one({"_id": "part"})


def actors_lag(broken: Broken) -> None:
    queued_long_ago(broken)
    past = broken.world.store.now() - 2 * HOUR
    broken.change("queues", "part", {"$set": {"takenQueuedAt": past}})


def message_lost(broken: Broken) -> None:
    queued_long_ago(broken)
    broken.drop_messages("part")
    polled_and_empty(broken.world.store, "part", ago=60.0)


def decision_not_applied(broken: Broken) -> None:
    ended(broken)


def ended(broken: Broken) -> str:
    """The worker of a part ended after the commit point."""
    key = claim(broken, "silent#1")
    decision = broken.world.store.decisions.get(key)
    assert decision is not None and decision.pass_key is not None
    number = int(str(decision.call.args)[2]) if decision.call else 0
    assert single.finish(
        broken.world.store, decision, Outcome(pass_key=decision.pass_key, value=str(number * number)),
        accept_first=True, worker="silent#1", apply_timeout=0.5,
    )  # fmt: skip
    broken.settle()
    return key


def children_missing(broken: Broken) -> None:
    key = broken.decision("merge", "waiting")
    broken.remove("tasks", key)
    broken.remove("decisions", key)


def ready_not_queued(broken: Broken) -> None:
    key = broken.decision("part", "queued")
    broken.drop_messages("part")
    others = [d["_id"] for d in broken.db["decisions"].find({"actor": "part", "state": "queued"})]
    for one in others:
        unset = {"pass": 1, "queuedAt": 1, "enqueuedAt": 1, "recoveryTime": 1}
        broken.change("decisions", one, {"$set": {"state": "waiting"}, "$unset": unset})
    assert key in others


def start_not_registered(broken: Broken) -> None:
    broken.remove("graphs", broken.id)
    for name in ("tasks", "decisions"):
        broken.remove(name, f"{broken.id}/start")
    broken.drop_messages("order")


def graph_missing(broken: Broken) -> None:
    broken.remove("graphs", broken.id)


def finished_undecided(broken: Broken) -> None:
    """As an older copy of the record has it."""
    unset = dict.fromkeys(("outcome", "pass", "worker", "attempts", "queuedAt", "recoveryTime"), 1)
    broken.change("decisions", broken.decision("part", "finished"), {"$set": {"state": "waiting"}, "$unset": unset})


def task_missing(broken: Broken) -> None:
    broken.remove("tasks", broken.decision("merge", "waiting"))


def decision_missing(broken: Broken) -> None:
    broken.remove("decisions", broken.decision("merge", "waiting"))


def decision_lost_for_good(broken: Broken) -> None:
    broken.remove("decisions", f"{broken.id}/start")


def dead_link(broken: Broken) -> None:
    links = {f"links.{broken.task('merge')}.{broken.task('part', 'finished')}": True}
    broken.change("graphs", broken.id, {"$set": links})


def cycle(broken: Broken) -> None:
    merge, part = broken.task("merge"), broken.task("part", "queued")
    broken.change("graphs", broken.id, {"$set": {f"links.{part}.{merge}": True}})


def finish_not_recorded(broken: Broken) -> None:
    soon = broken.world.store.now() + HOUR
    broken.change("processes", broken.id, {"$set": {"state": "running", "recoveryTime": soon}, "$unset": {"result": 1}})


def finished_too_early(broken: Broken) -> None:
    task, now = broken.task("report"), broken.world.store.now()
    broken.change("graphs", broken.id, {"$set": {f"notFinished.{task}": now, "recoveryTime": now + HOUR}})


def process_timeout(broken: Broken) -> None:
    past = broken.world.store.now() - 3 * HOUR
    broken.change("processes", broken.id, {"$set": {"startedAt": past}})


def orphan(broken: Broken) -> None:
    broken.remove("processes", broken.id)


def abort_cut_off(broken: Broken) -> None:
    """Whoever aborted it was cut off after the first write."""
    ended = {"state": "aborted", "epoch": 1, "endedAt": broken.world.store.now()}
    broken.change("processes", broken.id, {"$set": ended, "$unset": {"recoveryTime": 1}})


def redo_cut_off(broken: Broken) -> None:
    """Whoever has it done again was cut off after the first write."""
    past = broken.world.store.now() - HOUR
    begun = {"state": "running", "epoch": 1, "reopened": 1, "redo": ["start"], "recoveryTime": past}
    key = order(broken.world.store, OrderKind.REDO, {broken.id: 1}, ["start"])
    broken.change("processes", broken.id, {"$set": {**begun, "order": key}})


def interruptions_lost(broken: Broken) -> None:
    of_it = {"_id": {"$regex": f"^{broken.id}/"}}
    assert broken.db["interruptions"].delete_many(of_it).deleted_count == 2


def marker_not_written(broken: Broken) -> None:
    """Whoever broke it was cut off before its marker."""
    later, key = broken.world.store.now() + HOUR, order(broken.world.store, OrderKind.MARK, {broken.id: 0})
    broken.change("processes", broken.id, {"$set": {"markerDue": True, "order": key, "recoveryTime": later}})


def counter_damaged(broken: Broken) -> None:
    key = claim(broken, "silent#1")
    overdue(broken, key)
    broken.change("decisions", key, {"$set": {"losses": "0", "timeouts": "none", "queuedAt": "2026"}})


def actor_damaged(broken: Broken) -> None:
    broken.change("decisions", broken.decision("merge", "waiting"), {"$set": {"actor": 5}})


def graph_damaged(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"finished": "start", "links": [1]}})


def start_time_damaged(broken: Broken) -> None:
    broken.change("processes", broken.id, {"$set": {"startedAt": "today", "idleTimeout": {"$gt": 1}}})


def state_damaged(broken: Broken) -> None:
    broken.change("decisions", broken.decision("part", "finished"), {"$set": {"state": "sleeping"}})


def outcome_missing(broken: Broken) -> None:
    broken.change("decisions", ended(broken), {"$unset": {"outcome": 1}})


def end_damaged(broken: Broken) -> None:
    """Its value is there, and was accepted: it is not run again."""
    broken.change("decisions", ended(broken), {"$set": {"outcome.finishedAt": "today", "outcome.value": "100"}})


def graph_emptied(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"notFinished": {}, "links": {}, "finished": []}})


def not_finished_emptied(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"notFinished": {}, "links": {}}})


def finished_emptied(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"finished": []}})


def entry_lost(broken: Broken) -> None:
    gone = {f"{part}.{broken.task('merge')}": 1 for part in ("notFinished", "links")}
    broken.change("graphs", broken.id, {"$unset": gone})


def foreign_entry(broken: Broken) -> None:
    """A task that nobody scheduled; with it the graph would never be complete."""
    past = broken.world.store.now() - HOUR
    broken.change("graphs", broken.id, {"$set": {f"notFinished.{'a' * 16}": past}})


def decisions_lost(broken: Broken) -> None:
    """All of them, and their tasks: what the graph has as finished is not run again from the start."""
    for name in ("decisions", "tasks"):
        broken.db[name].delete_many({"_id": {"$regex": f"^{broken.id}/"}})


def aborted_graph_epoch(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"aborted": True, "epoch": 7}})


def graph_epoch(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"epoch": 3}})


def task_epoch(broken: Broken) -> None:
    broken.change("decisions", broken.decision("part", "queued"), {"$set": {"epoch": 2}})


def process_epoch(broken: Broken) -> None:
    broken.change("processes", broken.id, {"$set": {"epoch": 2}})


YEARS = timedelta(days=9 * 365)


def ended_at_no_time(broken: Broken) -> None:
    later = {"recoveryTime": broken.world.store.now() + timedelta(seconds=3)}
    broken.change("decisions", ended(broken), {"$unset": {"outcome.finishedAt": 1}, "$set": later})


def touched_in_years(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {"touchedAt": broken.world.store.now() + YEARS}})


def touched_at_no_time(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$unset": {"touchedAt": 1}})


def started_at_no_time(broken: Broken) -> None:
    broken.change("processes", broken.id, {"$unset": {"startedAt": 1}})


def due_in_years(broken: Broken) -> None:
    """Nobody would look at it before."""
    far = {"recoveryTime": broken.world.store.now() + YEARS}
    broken.change("decisions", broken.decision("part", "queued"), {"$set": far})


def delayed_for_years(broken: Broken) -> None:
    past, key = broken.world.store.now() - HOUR, broken.decision("report", "delayed")
    times = {"eta": past, "queuedAt": past, "recoveryTime": past + YEARS}
    broken.change("decisions", key, {"$set": times, "$unset": {"delay": 1}})


def aborted_by_hand(broken: Broken) -> None:
    broken.change("processes", broken.id, {"$set": {"state": "aborted"}, "$unset": {"recoveryTime": 1}})


def aborted_and_queued(broken: Broken) -> None:
    """An older copy of a task's record, after the abort."""
    key = broken.decision("part", "queued")
    queued = broken.db["decisions"].find_one({"_id": key})
    abort_process(broken.world.app.resources, broken.id, "a test")
    queued["recoveryTime"] = broken.world.store.now() - HOUR
    assert broken.db["decisions"].replace_one({"_id": key}, queued).modified_count == 1


def removal_cut_off(broken: Broken) -> None:
    assert [one.id for one in begin_removal(broken.world.store, [(broken.id, 0)], 60)] == [broken.id]


def removal_forged(broken: Broken) -> None:
    """By somebody who may write processes, and no orders."""
    due = {"removing": True, "order": new_pass(), "recoveryTime": broken.world.store.now() - HOUR}
    broken.change("processes", broken.id, {"$set": due})


FAULTS = (
    Fault(Rule.WORK_TIMEOUT, work_timeout),
    Fault(Rule.WORKER_LOST, worker_lost),
    Fault(Rule.TASK_TIMEOUT, task_timeout, process="time_limit", end=BROKEN, error="TaskTimeout"),
    Fault(Rule.DUE, due, process="later"),
    Fault(Rule.DEADLINE_MISSING, deadline_missing),
    Fault(Rule.SERVERS_WERE_DOWN, servers_were_down, end=None),
    Fault(Rule.NO_ACTORS, no_actors, end=None),
    Fault(Rule.ACTORS_LAG, actors_lag, end=None),
    Fault(Rule.DECISION_NOT_APPLIED, decision_not_applied),
    Fault(Rule.CHILDREN_MISSING, children_missing),
    Fault(Rule.READY_NOT_QUEUED, ready_not_queued),
    Fault(Rule.MESSAGE_LOST, message_lost),
    Fault(Rule.START_NOT_REGISTERED, start_not_registered, stage="started"),
    Fault(Rule.GRAPH_MISSING, graph_missing),
    Fault(Rule.FINISHED_UNDECIDED, finished_undecided),
    Fault(Rule.TASK_MISSING, task_missing),
    Fault(Rule.DECISION_MISSING, decision_missing),
    Fault(Rule.DECISION_MISSING, decision_lost_for_good, end=BROKEN, error="RecordsLost"),
    Fault(Rule.DEAD_LINK, dead_link),
    Fault(Rule.CYCLE, cycle, end=BROKEN, error="Cycle"),
    Fault(Rule.FINISH_NOT_RECORDED, finish_not_recorded, stage="ended"),
    Fault(Rule.FINISHED_TOO_EARLY, finished_too_early, stage="ended", end=None),
    Fault(Rule.PROCESS_TIMEOUT, process_timeout, process="time_limit"),
    Fault(Rule.ABORT_CUT_OFF, abort_cut_off, end=ProcessState.ABORTED),
    Fault(Rule.REDO_CUT_OFF, redo_cut_off),
    Fault(Rule.REMOVAL_CUT_OFF, removal_cut_off, stage="ended", end=None),
    Fault(Rule.ORDER_MISSING, removal_forged, stage="ended", end=None),
    Fault(
        Rule.INTERRUPTION_MISSING, interruptions_lost, stage="ended", process="refusing", end=BROKEN, error="ValueError"
    ),
    Fault(Rule.MARKER_MISSING, marker_not_written, stage="ended", process="refusing", end=BROKEN, error="ValueError"),
    Fault(Rule.ORPHAN, orphan, end=None),
    Fault(Rule.RECORD_DAMAGED, outcome_missing),
    Fault(Rule.RECORD_DAMAGED, end_damaged, result='{"total":101}'),
    Fault(Rule.GRAPH_CONTRADICTED, graph_emptied),
    Fault(Rule.GRAPH_CONTRADICTED, not_finished_emptied),
    Fault(Rule.GRAPH_CONTRADICTED, finished_emptied),
    Fault(Rule.GRAPH_CONTRADICTED, entry_lost),
    Fault(Rule.GRAPH_CONTRADICTED, foreign_entry),
    Fault(Rule.DECISION_MISSING, decisions_lost, end=BROKEN, error="RecordsLost"),
    Fault(Rule.EPOCH_WRONG, graph_epoch),
    Fault(Rule.EPOCH_WRONG, aborted_graph_epoch),
    Fault(Rule.EPOCH_WRONG, task_epoch),
    Fault(Rule.EPOCH_WRONG, process_epoch),
    Fault(Rule.TIME_IMPOSSIBLE, ended_at_no_time),
    Fault(Rule.TIME_IMPOSSIBLE, touched_in_years),
    Fault(Rule.TIME_IMPOSSIBLE, touched_at_no_time),
    Fault(Rule.TIME_IMPOSSIBLE, started_at_no_time),
    Fault(Rule.TIME_IMPOSSIBLE, due_in_years),
    Fault(Rule.TIME_IMPOSSIBLE, delayed_for_years, process="later"),
    Fault(Rule.ABORT_CUT_OFF, aborted_by_hand, end=ProcessState.ABORTED),
    Fault(Rule.ABORT_CUT_OFF, aborted_and_queued, end=ProcessState.ABORTED, error="Aborted"),
    Fault(Rule.RECORD_DAMAGED, counter_damaged),
    Fault(Rule.RECORD_DAMAGED, actor_damaged),
    Fault(Rule.RECORD_DAMAGED, graph_damaged),
    Fault(Rule.RECORD_DAMAGED, start_time_damaged),
)


def begin(world: World, fault: Fault) -> Broken:
    """A process of the fault's kind, brought to its stage and untouched since; all its queues are polled."""
    arguments = [3] if fault.process == "order" else []
    process_id = world.start(fault.process, *arguments)
    broken = Broken(world, process_id)
    if fault.stage == "ended":
        world.pump()
    elif fault.stage == "half way":
        with by_message_only():
            world.pump(serve={name: world.app.actors[name] for name in ("order", "later", "time_limit")})
            if fault.process == "order":
                world.take_one("part")
    world.tell()
    world.store.queues.polled(dict.fromkeys(world.app.actors))
    broken.settle()
    return broken
