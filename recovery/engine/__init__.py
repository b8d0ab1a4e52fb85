"""What a process does, and what is done to it: `actors` that users hold, the `lifecycle` of their tasks, and the
`operations` of operators.

`app` is the application that all of it hangs on, `resources` the connections of one process, `isolation` keeps one
damaged record from holding up the others, `outages` waits for a database that is away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.exports import exported

if TYPE_CHECKING:
    from recovery.engine.actors.actor import Actor
    from recovery.engine.actors.call import Host
    from recovery.engine.actors.context import heartbeat
    from recovery.engine.actors.log_context import LogContext
    from recovery.engine.app import Recovery
    from recovery.engine.isolation import batch_or_each, for_each, in_a_line, is_of_servers, tell
    from recovery.engine.lifecycle.applier import Applier
    from recovery.engine.lifecycle.attempt import Slot
    from recovery.engine.lifecycle.batches import Batches
    from recovery.engine.lifecycle.breaking import break_off
    from recovery.engine.lifecycle.complete import finish_process
    from recovery.engine.lifecycle.hand import LastRun
    from recovery.engine.lifecycle.listing import list_again
    from recovery.engine.lifecycle.reading import ended_portions, read_each
    from recovery.engine.lifecycle.rebuild import rebuild_graphs, remake_graph
    from recovery.engine.lifecycle.registering import register
    from recovery.engine.lifecycle.registrar import Registrar
    from recovery.engine.lifecycle.slots import Keys, look_at
    from recovery.engine.lifecycle.start import Started, start
    from recovery.engine.lifecycle.steps import Applied, Ended, enqueue, push
    from recovery.engine.lifecycle.trying import Result
    from recovery.engine.loading import load_app
    from recovery.engine.operations.ordering import order
    from recovery.engine.operations.schedules import declare_schedules
    from recovery.engine.resources import Resources

__all__ = [
    "Actor",
    "Applied",
    "Applier",
    "Batches",
    "Ended",
    "Host",
    "Keys",
    "LastRun",
    "LogContext",
    "Recovery",
    "Registrar",
    "Resources",
    "Result",
    "Slot",
    "Started",
    "batch_or_each",
    "break_off",
    "declare_schedules",
    "ended_portions",
    "enqueue",
    "finish_process",
    "for_each",
    "heartbeat",
    "in_a_line",
    "is_of_servers",
    "list_again",
    "load_app",
    "look_at",
    "order",
    "push",
    "read_each",
    "rebuild_graphs",
    "register",
    "remake_graph",
    "start",
    "tell",
]

__getattr__ = exported(
    __name__,
    {
        "actors.actor": "Actor",
        "actors.call": "Host",
        "actors.context": "heartbeat",
        "actors.log_context": "LogContext",
        "app": "Recovery",
        "isolation": "batch_or_each for_each in_a_line is_of_servers tell",
        "lifecycle.applier": "Applier",
        "lifecycle.attempt": "Slot",
        "lifecycle.batches": "Batches",
        "lifecycle.breaking": "break_off",
        "lifecycle.complete": "finish_process",
        "lifecycle.hand": "LastRun",
        "lifecycle.listing": "list_again",
        "lifecycle.reading": "ended_portions read_each",
        "lifecycle.rebuild": "rebuild_graphs remake_graph",
        "lifecycle.registering": "register",
        "lifecycle.registrar": "Registrar",
        "lifecycle.slots": "Keys look_at",
        "lifecycle.start": "Started start",
        "lifecycle.steps": "Applied Ended enqueue push",
        "lifecycle.trying": "Result",
        "loading": "load_app",
        "operations.ordering": "order",
        "operations.schedules": "declare_schedules",
        "resources": "Resources",
    },
)
