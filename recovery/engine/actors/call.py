"""Call an actor's function with its arguments, and return the outcome: a value or an error.

Every exception that an actor raises is its task's error, even that of `sys.exit()`. Otherwise the pool would silently
lose a thread, or an operating-system process would end without a reason in any record. A signal that ends the
operating-system process raises an exception, too, in the middle of any code. This exception is not the actor's. Only
the process itself can recognize it (`Host.ends`).
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from recovery import metrics
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.context import Attempt, beating
from recovery.engine.actors.resolve import CallRefused, arguments
from recovery.errors import ClaimLost, TooLarge
from recovery.records import Child, Decision, ErrorInfo, Outcome, Task, given
from recovery.records.failure import fingerprint
from recovery.records.values import encode
from recovery.retry import Catalogue, Classified, classify
from recovery.retry.catalogue import UNCLASSIFIED
from recovery.retry.signs import types_of
from recovery.store import Store

_ADVICE = "store the data elsewhere and pass its address, or join it in parts"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of an attempt."""

    outcome: Outcome
    """The value or the error."""
    children: tuple[Child, ...] = ()
    """The tasks that the attempt scheduled."""
    found: Classified | None = None
    """What the catalogues say of the error. None if the actor raised none."""
    types: tuple[str, ...] = ()
    """Full names of the error's class and of its superclasses."""


def call(
    store: Store,
    actor: Actor[..., Any],
    task: Task,
    decision: Decision,
    known: Mapping[str, Outcome],
    host: Host,
    catalogues: Sequence[Catalogue],
) -> CallResult | None:
    """Call the function of a claimed task, and return the result, or None if the attempt lost its claim.

    Args:
        store: The store.
        actor: The actor of the task.
        task: The task, with its arguments.
        decision: The claimed decision.
        known: {task id: outcome}, outcomes that need not be read.
        host: The process or thread that runs the attempt.
        catalogues: The catalogues that classify the actor's error.

    Raises:
        NotReady: A value that the task waits for does not exist.
        DamagedRecord: The arguments, or a value that they promise, cannot be read.
        CallRefused: The function cannot be called with the arguments. A TypeError that the function itself raises is an
            error of the task instead.
    """
    try:
        positional, named = arguments(store, task, known)
    except TooLarge as error:
        return CallResult(of_error(TooLarge(f"arguments of {actor.name}: {error}; {_ADVICE}"), decision))
    if (refusal := actor.why_not_callable(positional, named)) is not None:
        # The text has the name of a parameter, which may be as long as the arguments.
        raise CallRefused(refusal[:MESSAGE_LENGTH])
    if decision.refused is not None:
        store.decisions.clear_refusals(decision)
    # Around all code of the application: turning a value or an error into text runs such code as well.
    with host.running(decision, actor.preferences.worker_timeout):
        return _run(Attempt(store, decision, actor.preferences), actor, positional, named, host, catalogues)


def _run(
    attempt: Attempt,
    actor: Actor[..., Any],
    positional: Sequence[Any],
    named: Mapping[str, Any],
    host: Host,
    catalogues: Sequence[Catalogue],
) -> CallResult | None:
    decision, started_at = attempt.decision, time.perf_counter()
    try:
        with attempt, beating(attempt):
            outcome = of_value(attempt, actor.function(*positional, **named))
            return CallResult(outcome, attempt.children())
    except BaseException as error:
        # If an actor raises ClaimLost while it has its claim, this is an error like any other.
        if isinstance(error, ClaimLost) and attempt.lost.is_set():
            metrics.STALE.labels("claim lost").inc()
            return None
        if host.ends(error):
            raise
        classified = classify(error, catalogues)
        return CallResult(of_error(error, decision, classified), found=classified, types=types_of(error))
    finally:
        metrics.ATTEMPT_SECONDS.labels(actor.name).observe(time.perf_counter() - started_at)


class Host:
    """The operating-system process that runs attempts. The pool processes of workers override its methods."""

    @property
    def takes_more(self) -> bool:
        """Whether tasks may run here without a message, such as a task that became ready because another one ended."""
        return True

    def ends(self, error: BaseException) -> bool:
        """Return whether an error ends this operating-system process, and is not the actor's error.

        In this class, only a Ctrl-C does. Python raises KeyboardInterrupt for it in the main thread alone, and the
        processes of a pool have no handler for it. In any other case the actor raised the KeyboardInterrupt.
        """
        return (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def running(self, decision: Decision, timeout: float) -> AbstractContextManager[object]:
        """Return a context manager around the call of an actor's function. It may note the decision that runs, and for
        how many seconds it may run. If it raises, the attempt is cut off, and nothing of its result is written."""
        del decision, timeout
        return nullcontext()

    def was_done(self) -> None:
        """Note that a claimed task ran, whatever its result."""

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        """Note that a claimed task could not run, because of an error that is neither its function's nor a server's.
        `pass_key` is given if the task may be given back."""


KIND_LENGTH, MESSAGE_LENGTH = 100, 500
"""Maximum characters of an error's type and message that are stored. The longest class name in Python's own library has
30."""
STACK_BYTES = 20_000
"""Maximum bytes of an error's stack that are stored. Its end is kept. Together with a process's arguments it must fit
into one record."""


def of_value(attempt: Attempt, value: Any) -> Outcome:
    """Return the outcome for a returned value. Raises NotEncodable, TooLarge or InputError, which are the actor's
    errors."""
    description = f"value returned by {attempt.decision.actor}"
    encoded = encode(value, description)
    attempt.add_value(encoded, description)
    return Outcome(pass_key=pass_of(attempt.decision), value=encoded.text, waits=encoded.promises)


def pass_of(decision: Decision) -> str:
    """Return the pass under which an attempt claimed its task."""
    assert decision.pass_key is not None, "a claimed decision has a pass"
    return decision.pass_key


def of_error(error: BaseException, decision: Decision, found: Classified = UNCLASSIFIED) -> Outcome:
    """Return the outcome for an actor's exception."""
    return Outcome(pass_key=pass_of(decision), error=describe(error, decision, found))


def describe(error: BaseException, decision: Decision, found: Classified = UNCLASSIFIED) -> ErrorInfo:
    """Return the record of an exception: its type, its message, its classification, and the end of its stack."""
    kind = given.exact(type.__dict__["__name__"].__get__(type(error)))  # a metaclass may define another __name__
    stack = "".join(traceback.format_exception(error))
    return ErrorInfo(
        kind=_storable(kind[:KIND_LENGTH]) or "Exception",
        message=_storable(_text(error)[:MESSAGE_LENGTH]),
        code=found.code.number,
        reason=found.reason.name,
        task=decision.task_id,
        actor=decision.actor,
        stack=stack.encode(errors="replace")[-STACK_BYTES:].decode(errors="ignore"),
        fingerprint=fingerprint(kind, _frames(error)),
    )


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield (module, function) for each frame from the actor's function on, the outermost first. Modules are given by
    name, because paths differ between machines. The frame of our own call is left out, because all stacks have it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = given.exact(str(frame.f_globals.get("__name__", "?")))
        if module != __name__:
            yield module, frame.f_code.co_name


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _text(error: BaseException) -> str:
    try:
        # The text of a SystemExit is only the exit code.
        return f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else given.exact(str(error))
    except BaseException as failure:  # the application's own __str__
        return f"(no text: its __str__ raised {type(failure).__name__})"
