"""The store's steps for many, of one: what a test looks at mostly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.records import Child, Decision, Outcome, TaskLimit
from recovery.store import Finished, GraphView, Store


def claim(
    store: Store, actor: str, key: str, pass_key: str, worker: str, timeout: float, limit: TaskLimit | None = None
) -> Decision | None:
    """Claim the task of a message; None: the message is stale."""
    return next(iter(store.decisions.claim(actor, {key: pass_key}, worker, timeout, limit)), None)


def claim_ready(
    store: Store,
    actor: str,
    key: str,
    epoch: int,
    pass_key: str,
    worker: str,
    timeout: float,
    limit: TaskLimit | None = None,
) -> Decision | None:
    """Claim a ready task on the spot; None: it could not be."""
    return next(iter(store.decisions.claim_ready(actor, [key], epoch, pass_key, worker, timeout, limit)), None)


def finish(store: Store, claimed: Decision, outcome: Outcome, children: Sequence[Child] = (), **options: Any) -> bool:
    """Finish a claimed task; whether its result was accepted."""
    ended = claimed.evolve(outcome=outcome, children=tuple(children))
    return bool(store.decisions.finish([ended], **options))


def apply(store: Store, process_id: str, epoch: int, finished: Sequence[Finished]) -> GraphView | None:
    """Apply finished tasks to the graph of a process; None if it does not match."""
    return store.graphs.apply({process_id: (epoch, finished)}).get(process_id)


def finish_process(store: Store, process_id: str, epoch: int, result: str, reopened: int | None = None) -> bool:
    """End a process with this result; whether it was ended by this."""
    return process_id in store.processes.finish({process_id: result}, epoch, reopened).by_this
