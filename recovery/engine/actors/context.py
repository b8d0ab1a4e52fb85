"""The attempt that the current thread is running: what `schedule` and `heartbeat` refer to."""

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
"""What a child takes in its decider's record at most, beside its arguments, its links, and the name of its actor:
that stands there twice, with itself and with the one task that it waits for, if it is one."""
RETRY_BYTES = 160
"""What a retry policy of its own takes, at most, without the names in it."""
NAME_BYTES = 12
"""What an element of a list takes, beside its text."""
LINK_BYTES = 64
"""What a link takes, beside the name of the actor that waits: once with who waits, once with what is waited for."""


class Attempt:
    """One run of an actor's function for a claimed decision."""

    def __init__(self, store: Store, decision: Decision, preferences: ActorPreferences) -> None:
        self.decision = decision
        self.preferences = preferences
        self.lost = threading.Event()
        self.store = store
        self._pid = os.getpid()
        self._children: dict[str, Child] = {}
        self.size = 0

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
        """Note a child; it is scheduled when this attempt's result is accepted."""
        self.check_promises(args, f"arguments of {actor}")
        task_id = child_task_id(self.decision.task_id, self.decision.epoch, len(self._children))
        links = len(args.promises) * (LINK_BYTES + len(actor))
        own = 0 if context is None else len(context.encode())
        if retry is not None:
            own += RETRY_BYTES + len(retry.strategy or "") + sum(len(name) + NAME_BYTES for name in retry.retryable)
        self._add_size(len(args.text.encode()) + CHILD_BYTES + 2 * len(actor) + links + own, f"scheduling {actor}")
        self._children[task_id] = Child(
            id=task_id, actor=actor, args=args.text, deps=args.promises, eta=eta, delay=delay, fallible=fallible,
            retry=retry, context=context,
        )  # fmt: skip
        return Promise(task_id, actor)

    def add_value(self, encoded: Encoded, what: str) -> None:
        """Note the value that was returned."""
        self.check_promises(encoded, what)
        self._add_size(len(encoded.text.encode()) + LINK_BYTES * len(encoded.promises), what)

    def _add_size(self, size: int, what: str) -> None:
        """Count what goes into this task's one decision; TooLarge if it can't hold it."""
        self.size += size
        if self.size > MAX_BYTES:
            raise TooLarge(
                f"{what}: the result and child tasks of {self.decision.actor} come to over 16 MB, which is all "
                "that one record holds; let a child schedule a part of them"
            )

    def check_promises(self, encoded: Encoded, what: str) -> None:
        """Raise InputError for a promise that is not of a task scheduled by this attempt."""
        for task in encoded.promises:
            if task not in self._children:
                raise InputError(
                    f"{what}: holds a promise of task {task}, which this run of {self.decision.actor} did not "
                    "schedule; pass promises on within the function that scheduled them"
                )

    def children(self) -> tuple[Child, ...]:
        """The children, each with the siblings that wait for it."""
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
        """Whether this is a child of the process that runs the attempt: what is noted here is known to nobody."""
        return self._pid != os.getpid()

    def heartbeat(self) -> bool:
        """Move the deadline; False, and `lost` is set, if the claim is no longer this attempt's."""
        pass_key = self.decision.pass_key
        assert pass_key is not None
        timeout, limit = self.preferences.worker_timeout, self.preferences.task_limit
        held = self.store.decisions.extend(self.decision.id, pass_key, timeout, limit)
        if not held:
            self.lost.set()
        return held

    def __enter__(self) -> Attempt:
        self._token = _current.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


@contextmanager
def attempting(decision: Decision) -> Iterator[None]:
    """Within, this thread is at an attempt for this decision: its steps before and after the function's call, too."""
    token = _attempted.set(decision)
    try:
        yield
    finally:
        _attempted.reset(token)


def attempted() -> Decision | None:
    """The decision that this thread is at an attempt for."""
    return _attempted.get()


def running() -> Attempt | None:
    """The attempt that this thread runs."""
    return _current.get()


def current(what: str) -> Attempt:
    """The running attempt; NotInActor, naming `what` was asked, where there is none."""
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
    """Tell that the running actor is alive: it gets another `worker_timeout` from now.

    Raises ClaimLost if the task was meanwhile given to another attempt or decided: stop then. With
    `accept_first` the work may still be used if it ends before the other attempt; without it never. That the
    database is away is no error of the actor's: then nothing is told, and the deadline stands.
    """
    attempt = current("heartbeat()")
    try:
        lost = attempt.lost.is_set() or not attempt.heartbeat()
    except StoreError as error:
        log.warning("%s: heartbeat not written (%s); go on", attempt.decision.id, error)
        return
    if lost:
        raise ClaimLost(
            f"{attempt.decision.actor} {attempt.decision.id}: this attempt no longer holds its task; stop working"
        )


BEATS_PER_TIMEOUT = 3
"""Two may be late or lost before the deadline is past."""

RETRY = 1.0
"""Seconds until one that could not be written is tried again: by its own turn and past any breaker, since it is the
next heartbeat as well. What is overdue when the database comes back is judged
soon after: those that live must have said so by then."""


@contextmanager
def beating(attempt: Attempt) -> Iterator[None]:
    """Beat for an attempt while the block runs, if its actor wants it."""
    if not attempt.preferences.auto_heartbeat:
        yield
        return
    interval = attempt.preferences.worker_timeout / BEATS_PER_TIMEOUT

    def beat() -> float | None:
        return interval if attempt.heartbeat() else None

    def say(error: Exception) -> float:
        pause = min(interval, RETRY)
        log.warning("%s: heartbeat not written (%s); next in %g s", attempt.decision.id, error, pause)
        return pause

    heart = ServiceThread("heartbeat", beat, say, first=interval)
    heart.begin()  # if there is no thread, that is no fault of the task's: it may well end before its deadline
    try:
        yield
    finally:
        heart.stop()
