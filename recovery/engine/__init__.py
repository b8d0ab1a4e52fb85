"""What a process does, and what is done to it.

    actors       what users hold, and how their functions are called
    start        a process is saved and registered
    run          attempts at its tasks
    apply        finished tasks reach the graph; what is ready is enqueued; the process ends
    end          it is broken, aborted, done again or removed
    operators    what operators do, each kept in the audit log

Each step of a task's life is a function that may run twice, in two places, or stop half way. What one hands to the next
is in `steps`. Repairs and operators' commands call the same functions.

`app` is the application that all of it hangs on, `resources` the connections of one process, `isolation` keeps one
damaged record from holding up the others, `outages` waits for a database that is away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.engine.actors.actor import Actor
    from recovery.engine.actors.call import Host
    from recovery.engine.actors.context import heartbeat
    from recovery.engine.actors.log_context import LogContext
    from recovery.engine.actors.reschedule import reschedule
    from recovery.engine.app import Recovery
    from recovery.engine.apply.complete import finish_process
    from recovery.engine.apply.interruption import list_again
    from recovery.engine.apply.outbox import Outbox
    from recovery.engine.apply.rebuild import rebuild_graphs, remake_graph
    from recovery.engine.end.breaking import break_off
    from recovery.engine.isolation import batch_or_each, for_each, in_a_line, is_of_servers, tell
    from recovery.engine.loading import load_app
    from recovery.engine.operators.ordering import order
    from recovery.engine.operators.schedules import declare_schedules
    from recovery.engine.resources import Resources
    from recovery.engine.run.hand import LastRun
    from recovery.engine.run.pace import Pace
    from recovery.engine.run.slot import Intake, Slot
    from recovery.engine.run.trying import Result
    from recovery.engine.start.occurrences import Keys, look_at
    from recovery.engine.start.registration import Registrar, register
    from recovery.engine.start.start import Started, Starts
    from recovery.engine.steps import Applied, Ended, ended_portions, enqueue, push, read_each

__all__ = [
    "Actor",
    "Applied",
    "Ended",
    "Host",
    "Intake",
    "Keys",
    "LastRun",
    "LogContext",
    "Outbox",
    "Pace",
    "Recovery",
    "Registrar",
    "Resources",
    "Result",
    "Slot",
    "Started",
    "Starts",
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
    "reschedule",
    "tell",
]

__getattr__ = exported(
    __name__,
    {
        "actors.actor": "Actor",
        "actors.call": "Host",
        "actors.context": "heartbeat",
        "actors.reschedule": "reschedule",
        "actors.log_context": "LogContext",
        "app": "Recovery",
        "isolation": "batch_or_each for_each in_a_line is_of_servers tell",
        "apply.outbox": "Outbox",
        "run.pace": "Pace",
        "run.slot": "Intake Slot",
        "end.breaking": "break_off",
        "apply.complete": "finish_process",
        "run.hand": "LastRun",
        "apply.interruption": "list_again",
        "steps": "Applied Ended ended_portions enqueue push read_each",
        "apply.rebuild": "rebuild_graphs remake_graph",
        "start.registration": "Registrar register",
        "start.occurrences": "Keys look_at",
        "start.start": "Started Starts",
        "run.trying": "Result",
        "loading": "load_app",
        "operators.ordering": "order",
        "operators.schedules": "declare_schedules",
        "resources": "Resources",
    },
)
