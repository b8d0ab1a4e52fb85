"""The life of a task (design §3): actors and promises for the user, and the steps behind them.

`app` is what users hold. `start`, `dispatch`, `attempt`, `apply` and `complete` are the arrows of design §3,
each a function that may run twice, in two places, or stop half way. Repairs call the same functions.
"""

from recovery.engine.actor import Actor
from recovery.engine.app import Recovery
from recovery.engine.applier import Applier
from recovery.engine.attempt import Result, Slot
from recovery.engine.breaking import break_off
from recovery.engine.complete import finish_process
from recovery.engine.context import heartbeat
from recovery.engine.dispatch import enqueue, push
from recovery.engine.effects import Applied, Ended
from recovery.engine.guarded import each, is_of_servers, tell, together
from recovery.engine.host import Host
from recovery.engine.listing import list_again
from recovery.engine.loading import load_app
from recovery.engine.rebuild import rebuild_graphs, remake_graph, still_to_come
from recovery.engine.resources import Resources
from recovery.engine.start import register, start

__all__ = [
    "Actor",
    "Applied",
    "Applier",
    "Ended",
    "Host",
    "Recovery",
    "Resources",
    "Result",
    "Slot",
    "break_off",
    "each",
    "enqueue",
    "finish_process",
    "heartbeat",
    "is_of_servers",
    "list_again",
    "load_app",
    "push",
    "rebuild_graphs",
    "register",
    "remake_graph",
    "start",
    "still_to_come",
    "tell",
    "together",
]
