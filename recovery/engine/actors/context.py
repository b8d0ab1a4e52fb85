"""The attempt that the current thread runs. `schedule` and `heartbeat` act on it."""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime

from recovery.errors import ClaimLost, InputError, NotInActor, StoreError, TooLarge
from recovery.records import ActorPreferences, Child, Decision, Encoded, Promise, RetryOptions
from recovery.records.ids import child_task_id
from recovery.records.values import MAX_BYTES
from recovery.store import Store
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

_current: ContextVar[Attempt | None] = ContextVar("attempt", default=None)
_attempted: ContextVar[Decision | None] = ContextVar("attempted", default=None)

CHILD_BYTES = 160
"""Maximum bytes of a child in its parent's record, without its arguments, its links, and the name of its actor. The
name may be stored twice: in the child, and in the task that the child waits for, if it waits for one only."""
RETRY_BYTES = 160
"""Maximum bytes of a child's own retry policy, without the names in it."""
NAME_BYTES = 12
"""Bytes of an element of a list, without its text."""
LINK_BYTES = 64
"""Bytes of a link between two tasks, without the name of the waiting task's actor. A link is stored twice: with the
waiting task, and with the task that it waits for."""


class Attempt:
    """One run of an actor's function for a claimed decision, with the children that it schedules."""

    def __init__(self, store: Store, decision: Decision, preferences: ActorPreferences) -> None:
        self.decision = decision
        self.preferences = preferences
        self.lost = threading.Event()
        """Set once the attempt is known to have lost its claim."""
        self.store = store
        self._pid = os.getpid()
        self._children: dict[str, Child] = {}
        self.size = 0
        """Bytes that the decision has to hold so far."""

    def add_child(
        self,
        actor: str,
        args: Encoded,
        eta: datetime | None = None,
        delay: float | None = None,
        fallible: bool | None = None,
        *,
        retry: RetryOptions | None = None,
        context: str | None = None,
    ) -> Promise:
        """Add a child, and return a promise of its value. The child is created when this attempt's result is accepted.

        Raises:
            InputError: The arguments hold a promise of a task that this attempt did not schedule.
            TooLarge: The decision would be too large for one record.
        """
        self.check_promises(args, f"arguments of {actor}")
        task_id = child_task_id(self.decision.task_id, self.decision.epoch, len(self._children))
        links = len(args.promises) * (LINK_BYTES + len(actor))
        option_bytes = 0 if context is None else len(context.encode())
        if retry is not None:
            option_bytes += (
                RETRY_BYTES + len(retry.strategy or "") + sum(len(name) + NAME_BYTES for name in retry.retryable)
            )
        self._add_size(
            len(args.text.encode()) + CHILD_BYTES + 2 * len(actor) + links + option_bytes, f"scheduling {actor}"
        )
        self._children[task_id] = Child(
            id=task_id, actor=actor, args=args.text, deps=args.promises, eta=eta, delay=delay, fallible=fallible,
            retry=retry, context=context,
        )  # fmt: skip
        return Promise(task_id, actor)

    def add_value(self, encoded: Encoded, what: str) -> None:
        """Check and count the value that the function returned. Raises as `add_child`."""
        self.check_promises(encoded, what)
        self._add_size(len(encoded.text.encode()) + LINK_BYTES * len(encoded.promises), what)

    def _add_size(self, size: int, part: str) -> None:
        """Count bytes that this task's decision has to hold. Raises TooLarge if they are too many for one record."""
        self.size += size
        if self.size > MAX_BYTES:
            raise TooLarge(
                f"{part}: the result and child tasks of {self.decision.actor} come to over 16 MB, which is all "
                "that one record holds; let a child schedule a part of them"
            )

    def check_promises(self, encoded: Encoded, what: str) -> None:
        """Raise InputError for a promise of a task that this attempt did not schedule."""
        for task in encoded.promises:
            if task not in self._children:
                raise InputError(
                    f"{what}: holds a promise of task {task}, which this run of {self.decision.actor} did not "
                    "schedule; pass promises on within the function that scheduled them"
                )

    def children(self) -> tuple[Child, ...]:
        """Return the children, each with the siblings that wait for it."""
        dependents: dict[str, dict[str, str]] = defaultdict(dict)
        unlocks: dict[str, dict[str, str]] = defaultdict(dict)
        for child in self._children.values():
            for dep in child.deps:
                dependents[dep][child.id] = child.actor
                if len(child.deps) == 1:
                    unlocks[dep][child.id] = child.actor
        return tuple(
            child.evolve(dependents=dependents.get(child.id, {}), unlocks=unlocks.get(child.id, {}))
            for child in self._children.values()
        )

    @property
    def is_copy(self) -> bool:
        """Whether the current operating-system process is a child of the one that runs the attempt. Children of the
        task that are noted in this copy are lost."""
        return self._pid != os.getpid()

    def heartbeat(self) -> bool:
        """Move the task's deadline. Return False, and set `lost`, if this attempt no longer has the claim."""
        pass_key = self.decision.pass_key
        assert pass_key is not None
        timeout, limit = self.preferences.worker_timeout, self.preferences.task_limit
        has_claim = self.store.decisions.extend(self.decision.id, pass_key, timeout, limit)
        if not has_claim:
            self.lost.set()
        return has_claim

    def __enter__(self) -> Attempt:
        self._token = _current.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


@contextmanager
def attempting(decision: Decision) -> Iterator[None]:
    """Mark the steps of an attempt for this decision in this thread, including those before and after the function's
    call."""
    token = _attempted.set(decision)
    try:
        yield
    finally:
        _attempted.reset(token)


def attempted() -> Decision | None:
    """Return the decision whose attempt this thread works on, or None."""
    return _attempted.get()


def running() -> Attempt | None:
    """Return the attempt whose function this thread runs, or None."""
    return _current.get()


def current(what: str) -> Attempt:
    """Return the running attempt. Raises NotInActor, which names the call `what`, if this thread runs none."""
    attempt = running()
    if attempt is None:
        raise NotInActor(
            f"{what} was called outside a running actor; start a process with app.start(...), and schedule tasks "
            "from inside its functions (in the thread that runs them)"
        )
    if attempt.is_copy:
        raise NotInActor(
            f"{what} was called in a child process of {attempt.decision.actor}; call it in the process that runs the "
            "actor, with what the child returns"
        )
    return attempt


def check_may_wait(process_id: str, timeout: float | None) -> None:
    """Raise InputError if a running actor would wait for a process: its slot may be the one that the process needs."""
    attempt = running()
    if attempt is not None and timeout != 0:
        actor = attempt.decision.actor
        raise InputError(
            f"app.result of process {process_id} was called by the running actor {actor}, which would hold its slot "
            "while it waits; schedule tasks instead, and pass their promises to another task or return them. To ask "
            "whether a process has ended give timeout=0: then ResultTimeout has the task tried again later"
        )


def heartbeat() -> None:
    """Report that the running actor is alive, and move its deadline.

    An attempt must end, or call this function, within its actor's `worker_timeout`. Otherwise its task is given to
    another attempt. Each call gives the attempt another `worker_timeout` from now. The setting `auto_heartbeat` does
    this in a background thread.

    If MongoDB cannot be reached, this function logs a warning and returns. The deadline then stays as it was.

    Raises:
        ClaimLost: The task was given to another attempt, or it has ended. Stop working on it. With the setting
            `accept_first` a value that this attempt still returns is accepted if it is the first. Without the setting
            it is discarded.
        NotInActor: No actor runs in this thread.

    Example:
        @app.actor(worker_timeout="1m")
        def convert(pages):
            for page in pages:
                heartbeat()
                convert_page(page)
    """
    attempt = current("heartbeat()")
    try:
        lost = attempt.lost.is_set() or not attempt.heartbeat()
    except StoreError as error:
        log.warning("%s: could not write a heartbeat (%s); the actor goes on", attempt.decision.id, error)
        return
    if lost:
        raise ClaimLost(
            f"{attempt.decision.actor} {attempt.decision.id}: this attempt no longer holds its task; stop working"
        )


BEATS_PER_TIMEOUT = 3
"""Automatic heartbeats in one `worker_timeout`. Two of them may be late or lost before the deadline is past."""

RETRY = 1.0
"""Seconds until a heartbeat that could not be written is tried again. The next heartbeat is itself the retry, so
neither the retry orchestrator nor a circuit breaker is used. The delay is short, because overdue tasks are judged soon
after MongoDB comes back. Live attempts must have reported by then."""


@contextmanager
def beating(attempt: Attempt) -> Iterator[None]:
    """Send heartbeats for an attempt while the block runs, if its actor has `auto_heartbeat`."""
    if not attempt.preferences.auto_heartbeat:
        yield
        return
    interval = attempt.preferences.worker_timeout / BEATS_PER_TIMEOUT

    def beat() -> float | None:
        return interval if attempt.heartbeat() else None

    def log_failure(error: Exception) -> float:
        pause = min(interval, RETRY)
        log.warning("%s: could not write a heartbeat (%s); next try in %g s", attempt.decision.id, error, pause)
        return pause

    heart = ServiceThread("heartbeat", beat, log_failure, first=interval)
    heart.begin()  # the attempt runs even if no thread can be started: it may end before its deadline
    try:
        yield
    finally:
        heart.stop()
