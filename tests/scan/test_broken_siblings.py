"""What goes on beside a task that failed: damaged in every way, it is recovered as in a process that runs, and the
process stays broken for what failed alone. Then it is restarted, and ends as it should."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery import Settings
from recovery.engine.operators.restart import restart_process
from recovery.health import look
from recovery.records import DecisionState, ProcessState
from recovery.rules import Finding, Repair, Rule
from tests.failure_map.faults import Broken
from tests.waiting import wait_until
from tests.world import World, by_message_only


class Shop(World):
    """`order`: `charge`, which fails, beside `pick`, then `pack`; `send` waits for both."""

    fails = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.ran: list[str] = []

        @self.app.actor(retry=None)
        def charge() -> str:
            if self.fails:
                raise ValueError("no money")
            return "charged"

        @self.app.actor()
        def pick() -> str:
            self.ran.append("pick")
            return "picked"

        @self.app.actor()
        def pack(what: str) -> str:
            self.ran.append("pack")
            return f"{what}, packed"

        @self.app.actor()
        def send(*done: str) -> str:
            return ", ".join([*done, "sent"])

        @self.app.process(idle_timeout=600)
        def order() -> object:
            return send.schedule(charge.schedule(), pack.schedule(pick.schedule()))

    def broken(self) -> Broken:
        """A process that is broken, and whose sibling tasks wait for workers."""
        process_id = self.start("order")
        with by_message_only():
            self.pump(serve={name: actor for name, actor in self.app.actors.items() if name != "pick"})
        assert self.process(process_id).state is ProcessState.BROKEN
        return Broken(self, process_id)


@pytest.fixture
def shop(emptied: Settings) -> Shop:
    return Shop(emptied)


def lose_decision(broken: Broken) -> None:
    broken.remove("decisions", broken.decision("pack"))


def lose_task(broken: Broken) -> None:
    broken.remove("tasks", broken.decision("pack"))


def lose_both(broken: Broken) -> None:
    key = broken.decision("pack")
    broken.remove("tasks", key)
    broken.remove("decisions", key)


def lose_live(broken: Broken) -> None:
    broken.remove("decisions", broken.decision("pick"))


def lose_graph(broken: Broken) -> None:
    broken.remove("graphs", broken.id)


def forget_to_queue(broken: Broken) -> None:
    gone = ("recoveryTime", "pass", "queuedAt", "enqueuedAt")
    change = {"$set": {"state": "waiting"}, "$unset": dict.fromkeys(gone, 1)}
    broken.change("decisions", broken.decision("pick"), change)


def kill_link(broken: Broken) -> None:
    broken.change("graphs", broken.id, {"$set": {f"links.{broken.task('pack')}.nobody": True}})


def finish_in_graph(broken: Broken) -> None:
    task = broken.task("pick")
    broken.change("graphs", broken.id, {"$push": {"finished": task}, "$unset": {f"notFinished.{task}": 1}})


def put_off(broken: Broken) -> None:
    years = broken.world.store.now().replace(year=2090)
    broken.change("decisions", broken.decision("pick"), {"$set": {"recoveryTime": years}})
    broken.drop_messages("pick")


DAMAGE: list[tuple[Callable[[Broken], None], set[Rule]]] = [
    (lose_decision, {Rule.DECISION_MISSING}),
    (lose_task, {Rule.TASK_MISSING}),
    (lose_both, {Rule.CHILDREN_MISSING}),
    (lose_live, {Rule.DECISION_MISSING}),
    (lose_graph, {Rule.GRAPH_MISSING}),
    (forget_to_queue, {Rule.READY_NOT_QUEUED}),
    (kill_link, {Rule.DEAD_LINK}),
    (finish_in_graph, {Rule.FINISHED_UNDECIDED}),
    (put_off, {Rule.DEADLINE_MISSING}),
]


@pytest.mark.parametrize(("damage", "rules"), DAMAGE, ids=lambda one: getattr(one, "__name__", ""))
def test_it_is_told_and_recovered(shop: Shop, damage: Callable[[Broken], None], rules: set[Rule]) -> None:
    broken = shop.broken()
    damage(broken)
    broken.settle()
    assert rules <= {finding.rule for finding in wrong(shop, broken)}
    broken.look_now()
    recovered(shop, broken)
    process = shop.process(broken.id)
    assert (process.state, process.error and process.error.kind) == (ProcessState.BROKEN, "ValueError")
    (listed,) = shop.store.interruptions.of_process(broken.id)
    assert listed.actor == "charge"
    assert wrong(shop, broken) == []
    at_rest(shop, broken)
    assert shop.ran == ["pick", "pack"], "each of them once"
    shop.fails = False
    restart_process(shop.app.resources, broken.id)
    assert shop.bring_to_end(broken.id).state is ProcessState.FINISHED
    assert shop.app.result(broken.id) == "charged, picked, packed, sent"


def wrong(shop: Shop, broken: Broken) -> list[Finding]:
    """What `recovery check` finds, but for what merely waits for workers."""
    found = look(shop.app.resources, broken.id).findings
    return [finding for finding in found if finding.repair is not Repair.WAIT]


def recovered(shop: Shop, broken: Broken) -> None:
    """Have workers and scanners do all that can be done beside what failed."""

    def packed() -> bool:
        shop.pump()
        broken.settle()
        broken.look_now()
        shop.scan()
        states = {one.actor: one.state for one in shop.decisions(broken.id).values()}
        return states.get("pack") is DecisionState.FINISHED

    wait_until(packed, 10, "what goes on beside the failed task")


def at_rest(shop: Shop, broken: Broken) -> None:
    """Nobody looks at it any more."""

    def is_so() -> bool:
        broken.settle()
        broken.look_now()
        shop.pump()
        shop.scan()
        snapshot = shop.store.snapshots([broken.id])[0]
        records = [snapshot.process, snapshot.graph, *snapshot.decisions.values()]
        return not any(one.recovery_time for one in records if one is not None)

    wait_until(is_so, 10, "all records at rest")


def test_what_is_lost_for_good_is_listed_once_and_leaves_nothing_to_look_at(shop: Shop) -> None:
    """Records that nobody can bring back are what the process is broken for as well, and are not reported for ever."""
    broken = shop.broken()
    start = f"{broken.id}/start"
    for key in (broken.decision("pack"), start):
        broken.remove("decisions", key)
    broken.settle()
    broken.look_now()

    def listed() -> bool:
        shop.scan()
        return len(shop.store.interruptions.of_process(broken.id)) == 2

    wait_until(listed, 10, "what is lost is listed")
    assert {one.kind for one in shop.store.interruptions.of_process(broken.id)} == {"ValueError", "RecordsLost"}
    assert wrong(shop, broken) == []
    assert shop.process(broken.id).state is ProcessState.BROKEN


def test_healthy_it_costs_nothing(shop: Shop) -> None:
    broken = shop.broken()
    broken.settle()
    assert wrong(shop, broken) == []
    broken.look_now()
    shop.scan()
    assert "recoveryTime" in broken.db["graphs"].find_one({"_id": broken.id}), "what goes on is looked at again"
    shop.pump()
    at_rest(shop, broken)
