"""Everything that happens to a process, from its start to its end.

    actors       what users hold, and how their functions are called
    start        save and register a process
    run          claim tasks, and run attempts
    apply        apply finished tasks to the graph, enqueue the tasks that are ready, finish the process
    end          break, abort, redo or remove a process
    operators    the commands of operators, each recorded in the audit log

Each step of a task's life is a function that may run twice, run in two places at once, or stop half way. `steps` has
the data that one step passes to the next. Repairs and operators' commands call the same functions.

`app` is the application object. `resources` holds the connections of one operating-system process. `isolation` keeps
one damaged record from blocking the others. `outages` retries a step while MongoDB is unavailable.
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
