"""Every command with a line that can be tried, and a world to try it in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from recovery import Promise, Settings, operations
from recovery.cli.command_options import Command
from recovery.cli.main import app
from recovery.demo.app import app as demo_app
from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.overrides import ActorOverrides
from recovery.engine.operators.saved_searches import save_search
from recovery.engine.operators.schedules import Schedules, declare_schedules
from recovery.operations.saved import save_operation
from recovery.records import Marker, ProcessTypePreferences, Worker
from tests.emptied import Kept, empty
from tests.waiting import wait_until
from tests.world import World

LONG_NAME = "recalculate_prices_of_all_items_in_stock"
EXAMPLE = "recovery/wfformat/example.json"
SERVERS = {"up", "worker", "beat"}
"""Commands that run until they are stopped, and have no JSON."""
COMMANDS = {
    "show": ["show", "order-4711"],
    "start": ["start", "echo", "1", "--app", "tests.cli.shop:app", "--label", "customer=acme"],
    "run": ["run", EXAMPLE, "--timeout", "10ms"],
    "status": ["status"],
    "workers": ["workers"],
    "disk": ["disk"],
    "find": ["find", "type:order state:running"],
    "find --explain": ["find", "type:order state:running", "--explain"],
    "list": ["list"],
    "search save": ["search", "save", "late-orders", "@orders overdue", "--reason", "looked at each morning"],
    "search list": ["search", "list"],
    "search remove": ["search", "remove", "orders"],
    "operation start": ["operation", "start", "check", "--all", "--reason", "Redis was lost"],
    "operation start --idle-timeout": [
        *("operation", "start", "set_idle_timeout", "--all", "--idle-timeout", "10m", "--reason", "too often")
    ],
    "operation save": [
        "operation",
        "save",
        "nightly",
        "repair",
        "type:order",
        "--rate",
        "50",
        "--reason",
        "each night",
    ],
    "operation saved": ["operation", "saved"],
    "operation forget": ["operation", "forget", "checked"],
    "operation list": ["operation", "list"],
    "operation show": ["operation", "show", "2"],
    "operation watch": ["operation", "watch", "1"],
    "operation apply": ["operation", "apply", "2", "--reason", "looked at it"],
    "operation pause": ["operation", "pause", "3"],
    "operation resume": ["operation", "resume", "4"],
    "operation cancel": ["operation", "cancel", "3", "--reason", "a wrong selection"],
    "operation rate": ["operation", "rate", "2", "50"],
    "operation report": ["operation", "report", "2"],
    "audit": ["audit"],
    "doctor": ["doctor"],
    "check": ["check", "order-4711"],
    "init": ["init"],
    "ping": ["ping", "--timeout", "100ms"],
    "actor list": ["actor", "list"],
    "actor show": ["actor", "show", LONG_NAME],
    "actor set": ["actor", "set", LONG_NAME, "worker_timeout=2m", "max_work_timeouts=3", "requeue_rate=50"],
    "actor unset": ["actor", "unset", LONG_NAME, "worker_timeout", "max_work_timeouts"],
    "actor block": ["actor", "block", LONG_NAME],
    "actor unblock": ["actor", "unblock", LONG_NAME],
    "actor forget": ["actor", "forget", "gone"],
    "process-type list": ["process-type", "list"],
    "process-type show": ["process-type", "show", "order"],
    "process-type set": ["process-type", "set", "order", "process_timeout=1h", "idle_timeout=90s"],
    "process-type unset": ["process-type", "unset", "order", "process_timeout"],
    "process-type disable": ["process-type", "disable", "order", "--reason", "the ledger is closed"],
    "process-type enable": ["process-type", "enable", "order"],
    "marker list": ["marker", "list"],
    "marker list --cleared": ["marker", "list", "--cleared"],
    "marker show": ["marker", "show", "order/a ring"],
    "marker clear": ["marker", "clear", "order/a ring", "--reason", "the box is there"],
    "schedule add": ["schedule", "add", "yearly", "order", "schedule=@yearly", 'arguments=["a ring"]'],
    "schedule operation": [
        *("schedule", "operation", "old", "collect", "ended:before(90d)", "schedule=@daily"),
        *("--reason", "90 days are enough"),
    ],
    "schedule list": ["schedule", "list"],
    "schedule show": ["schedule", "show", "nightly"],
    "schedule set": ["schedule", "set", "nightly", "jitter=1m", "retry_across=6h", "--reason", "a slow source"],
    "schedule unset": ["schedule", "unset", "nightly", "jitter"],
    "schedule pause": ["schedule", "pause", "nightly", "--reason", "the source is moved"],
    "schedule resume": ["schedule", "resume", "nightly"],
    "schedule enable": ["schedule", "enable", "nightly", "--reason", "the source is back"],
    "schedule remove": ["schedule", "remove", "nightly"],
    "schedule next": ["schedule", "next", "30 2 * * *", "--time-zone", "Europe/Berlin", "--from", "2026-10-24"],
    "schedule trigger": ["schedule", "trigger", "nightly"],
    "broken list": ["broken", "list"],
    "broken list --ids": ["broken", "list", "--ids"],
    "broken show": ["broken", "show", "order-4711"],
    "broken restart": ["broken", "restart", "--type", "order"],
    "broken abort": ["broken", "abort", "--type", "order"],
    "restart": ["restart", "order-4711"],
    "restart --yes": ["restart", "order-4711", "--reason", "wrong prices", "--yes"],
    "abort": ["abort", "order-4711"],
    "abort --yes": ["abort", "order-4711", "--reason", "order withdrawn", "--yes"],
    "import": ["import", str(Path(__file__).with_name("export.jsonl")), "--reason", "the auditors ask"],
    "show --history": ["show", "order-4711", "--history"],
    "retry explain": ["retry", "explain", "--catalogue", "couchbase", "--service", "kv", "--status", "0x86"],
    "retry delays": ["retry", "delays", "--seed", "1"],
    "broken abort --waiting-for": ["broken", "abort", "--waiting-for", LONG_NAME],
}
"""{command, with options: its line}. `sweep` takes a Spark session, `demo` and `drill` a cluster: their JSON is tried
where they are."""
ELSEWHERE = {"sweep", "demo", "drill"}


def names(group: typer.core.TyperGroup, before: str = "") -> Iterator[tuple[str, Command]]:
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from names(command, f"{before}{name} ")
        else:
            assert isinstance(command, Command)
            yield f"{before}{name}", command


def all_commands() -> dict[str, Command]:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return dict(names(group))


def make_world(lasting: Settings) -> Kept:
    """With a process that is broken, and has a task that no worker serves."""
    empty(lasting)
    made = World(lasting, apply_timeout=60, message_timeout=60, idle_timeout=60)

    @made.app.actor()
    def pack(item: str) -> str:
        raise ValueError(f"{item} can't be packed: there is no box in which it would fit, be it as small as it may")

    def recalculate(item: str) -> str:
        return item

    made.app.actor(LONG_NAME)(recalculate)

    @made.app.process(markers=True, key=lambda **given: given.get("item"))
    def order(item: str) -> list[Promise]:
        return [pack.schedule(item), made.app.actors[LONG_NAME].schedule(item)]

    made.tell()
    made.start("order", "a ring", custom_id="order-4711")
    made.pump(serve={name: made.app.actors[name] for name in ("order", "pack")})
    queues = (*demo_app.actors, "order", "pack")
    made.store.workers.beat(Worker(id="w", name="worker@host", host="host", pid=1, pid_started=1, queues=queues), 600)
    made.store.actors.save([made.app.actors["pack"].preferences.evolve(id="gone")])
    ActorOverrides(made.app.resources).set(LONG_NAME, {"worker_timeout": 120.0, "max_work_timeouts": 3})
    made.store.process_types.save([ProcessTypePreferences(id="order")])
    said = {"schedule": "30 2 * * *", "arguments": ["a ring"]}
    Schedules(made.app.resources, by="me@here").add("nightly", "order", said, "from now on")
    declare_schedules(made.app.resources, made.app.actors, {})
    made.store.markers.write(
        Marker(id="order/tea", type="order", key="tea", kind="Away", process="p"), made.store.now()
    )
    clear_marker(made.app.resources, "order/tea", "it is there", by="me@here")
    save_search(made.app.resources, "orders", "type:order", "what the shop asks for", by="me@here")
    asked = operations.OperationRequest("check", "type:order", rate=50.0, thorough=True)
    save_operation(made.app.resources, "checked", asked, "what the shop asks for", by="me@here")
    _order(made)
    made.store.catch_up(10)
    return Kept(lasting)


def _order(made: World) -> None:
    """Operations: a check that is finished, an abort that is planned, and two that somebody is to work at."""
    worker = operations.OperationWorker(made.app.resources, made.app.outbox, "worker@host")
    for kind in ("check", "abort"):
        asked = operations.OperationRequest(kind, "type:order")
        operations.start(made.app.resources, asked, "the ledger is closed", by="me@here")
    wait_until(lambda: not worker.run_once(5) and not made.store.operations.at_work(), 20, "both plans")
    for _ in range(2):
        last = operations.start(
            made.app.resources, operations.OperationRequest("check", everything=True), "once more", by="me@here"
        )
    operations.pause(made.app.resources, last.id, by="me@here")
