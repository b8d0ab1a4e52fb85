"""The call of an actor's function: what goes in, and what comes of it. Nothing is written here but heartbeats.

Whatever an actor raises is its task's error, `sys.exit()` and the like included: a thread that they ended would be lost
to its pool without a word, and a process that they ended would tell nobody why. What is not the actor's is the end of
the process itself, which a signal raises in the middle of whatever runs; only the process knows (`Host`).
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
    """What came of an attempt: its outcome, the children it scheduled, and what its error is, if the actor raised
    one."""

    outcome: Outcome
    children: tuple[Child, ...] = ()
    found: Classified | None = None
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
    """What came of a claimed task; None if it lost its claim. Outcomes `known` are not read; errors are known by the
    `catalogues`. Raises NotReady and DamagedRecord for what it is to be called with, and CallRefused if the function
    can't be called with it: a TypeError that is raised inside the function is an error of the task."""
    try:
        positional, named = arguments(store, task, known)
    except TooLarge as error:
        return CallResult(of_error(TooLarge(f"arguments of {actor.name}: {error}; {_ADVICE}"), decision))
    if (why := actor.why_not_callable(positional, named)) is not None:
        raise CallRefused(why[:MESSAGE_LENGTH])  # it names a parameter, whose name may be as long as the arguments
    if decision.refused is not None:
        store.decisions.clear_refusals(decision)
    # Around all that is the application's: to turn a value or an error into text calls it as well.
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
    decision, began = attempt.decision, time.perf_counter()
    try:
        with attempt, beating(attempt):
            outcome = of_value(attempt, actor.function(*positional, **named))
            return CallResult(outcome, attempt.children())
    except BaseException as error:
        # Raised by an actor that has its claim it is an error like any other.
        if isinstance(error, ClaimLost) and attempt.lost.is_set():
            metrics.STALE.labels("claim lost").inc()
            return None
        if host.ends(error):
            raise
        found = classify(error, catalogues)
        return CallResult(of_error(error, decision, found), found=found, types=types_of(error))
    finally:
        metrics.ATTEMPT_SECONDS.labels(actor.name).observe(time.perf_counter() - began)


class Host:
    """Any process. Those of a worker's pool know more of themselves."""

    @property
    def takes_more(self) -> bool:
        """Whether tasks may be run here that no message brought."""
        return True

    def ends(self, error: BaseException) -> bool:
        """Whether an error says that this process is to end, and is none of the actor's.

        Here that is a Ctrl-C. Where it can't be one, a KeyboardInterrupt was raised by the actor: Python raises it in
        the main thread alone, and the processes of a pool have no handler for it.
        """
        return (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def running(self, decision: Decision, timeout: float) -> AbstractContextManager[object]:
        """Around the call of an actor's function: what runs here, and for how many seconds it may. What this raises
        cuts the attempt off: nothing that came of the call is written."""
        del decision, timeout
        return nullcontext()

    def was_done(self) -> None:
        """A claimed task was done here, whatever came of it."""

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        """A task was claimed here, and could not be run for an error that is neither its function's nor a server's.
        With its pass it may be given back."""


KIND_LENGTH, MESSAGE_LENGTH = 100, 500
"""Characters that are kept: the longest name of a class in Python's own library has 30."""
STACK_BYTES = 20_000
"""Of an error's stack its end is kept: with a process's arguments it has to fit into one record."""


def of_value(attempt: Attempt, value: Any) -> Outcome:
    """The accepted form of a returned value. Raises NotEncodable, TooLarge, InputError: the actor's errors."""
    what = f"value returned by {attempt.decision.actor}"
    encoded = encode(value, what)
    attempt.add_value(encoded, what)
    return Outcome(pass_key=pass_of(attempt.decision), value=encoded.text, waits=encoded.promises)


def pass_of(decision: Decision) -> str:
    """The pass that an attempt claimed its task under."""
    assert decision.pass_key is not None, "a claimed decision has a pass"
    return decision.pass_key


def of_error(error: BaseException, decision: Decision, found: Classified = UNCLASSIFIED) -> Outcome:
    """What an actor's exception ends its task with."""
    return Outcome(pass_key=pass_of(decision), error=describe(error, decision, found))


def describe(error: BaseException, decision: Decision, found: Classified = UNCLASSIFIED) -> ErrorInfo:
    """The record of an exception: its type, message, what it was found to be, and the end of its stack."""
    kind = given.exact(type.__dict__["__name__"].__get__(type(error)))  # a metaclass may say otherwise
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
    """(module, function) of each frame from the actor's function on, the outermost first. By the module's name, which
    has no root; our own call of the function is in all stacks alike."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = given.exact(str(frame.f_globals.get("__name__", "?")))
        if module != __name__:
            yield module, frame.f_code.co_name


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _text(error: BaseException) -> str:
    try:
        # Its own text is the code alone.
        return f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else given.exact(str(error))
    except BaseException as failure:  # the application's own __str__
        return f"(no text: its __str__ raised {type(failure).__name__})"
