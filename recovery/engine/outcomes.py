"""What a run of an actor's function comes to: its value as it is accepted, or its error, described."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from recovery.engine.context import Attempt
from recovery.records import Decision, ErrorInfo, Outcome, given
from recovery.records.failure import fingerprint
from recovery.records.values import encode

KIND_LENGTH, MESSAGE_LENGTH = 100, 500
"""Characters that are kept: the longest name of a class in Python's own library has 30."""
CALLER = "recovery.engine.call"
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


def of_error(error: BaseException, decision: Decision) -> Outcome:
    """What an actor's exception ends its task with."""
    return Outcome(pass_key=pass_of(decision), error=describe(error, decision))


def describe(error: BaseException, decision: Decision) -> ErrorInfo:
    """The record of an exception: its type, message, and the end of its stack."""
    kind = given.exact(type.__dict__["__name__"].__get__(type(error)))  # a metaclass may say otherwise
    stack = "".join(traceback.format_exception(error))
    return ErrorInfo(
        kind=_storable(kind[:KIND_LENGTH]) or "Exception",
        message=_storable(_text(error)[:MESSAGE_LENGTH]),
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
        if module != CALLER:
            yield module, frame.f_code.co_name


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _text(error: BaseException) -> str:
    try:
        # Its own text is the code alone.
        return f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else given.exact(str(error))
    except BaseException as failure:  # the application's own __str__
        return f"(its text can't be had: {type(failure).__name__})"
