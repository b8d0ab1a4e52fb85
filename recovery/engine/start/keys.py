"""The key of a process: which object of its type it is for, as computed by the key function of its process type.

The function gets the arguments by name, with their defaults, as the process's own function does. Arguments without a
name are passed by position. The key is stored in the process's record, so whoever breaks the process later does not
need the code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recovery.engine.actors.actor import Actor, encode_call
from recovery.errors import InputError
from recovery.records import given
from recovery.wording import printable

MAX_LENGTH = 200
"""Maximum characters of a key. It is read and typed as part of a marker's name."""

KeyFunction = Callable[..., Any]


def check_key_function(name: str, function: Any) -> KeyFunction | None:
    """Return a process type's key function. Raise InputError if it can't be called."""
    if function is None or callable(function):
        checked: KeyFunction | None = function
        return checked
    wanted = "a function of the process's arguments, such as `lambda database, **_: database`"
    raise InputError(f"process type {name}: key={given.shown(function)}: must be {wanted}")


def key_of(
    name: str, key: KeyFunction, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return the key of a process that is called with these arguments; None if it is for its type as a whole.

    Args:
        name: The process type.
        key: Its key function.
        function: The function of its start task.
        args: Positional arguments of the call.
        kwargs: Named arguments of the call.

    Raises:
        InputError: The key function failed, or returned an invalid key.
    """
    positional, named = _by_name(function, args, kwargs)
    try:
        value = key(*positional, **named)
    except Exception as error:  # the key function is application code
        failure = f"{type(error).__name__}: {error}"[:300]
        raise InputError(
            f"process type {name}: its key function raised {failure}. Nothing was started; correct the arguments, or "
            "the function, which gets the arguments by name"
        ) from error
    if value is None:
        return None
    number = given.number(value)
    text = str(number) if number is not None and given.is_finite(number) else value
    if not isinstance(text, str) or not _is_key(text := given.exact(text)):
        wanted = f"a text of 1 to {MAX_LENGTH} printable characters, a number, or None for the type as a whole"
        raise InputError(
            f"process type {name}: its key function returned {given.shown(value)}, which is not a valid key: "
            f"it must return {wanted}. Nothing was started"
        )
    return text


def _is_key(text: str) -> bool:
    return 0 < len(text) <= MAX_LENGTH and given.is_unicode(text) and printable(text) == text and text == text.strip()


def _by_name(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and the named arguments of a call, by name as far as they have one."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # a builtin without a signature
        return args, kwargs
    bound.apply_defaults()
    kinds = {parameter.name: parameter.kind for parameter in bound.signature.parameters.values()}
    if any(kind is inspect.Parameter.VAR_POSITIONAL and bound.arguments.get(name) for name, kind in kinds.items()):
        return bound.args, bound.kwargs
    positional = [value for name, value in bound.arguments.items() if kinds[name] is inspect.Parameter.POSITIONAL_ONLY]
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if kinds[name] is inspect.Parameter.VAR_KEYWORD:
            named |= value
        elif kinds[name] not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            named[name] = value
    return positional, named


def encode_start(actor: Actor[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str | None]:
    """Return the JSON text of the arguments that a process is started with, and its key. Raise InputError for invalid
    arguments."""
    actor.check_call(args, kwargs)
    encoded = encode_call(actor.name, args, kwargs)
    if encoded.promises:
        raise InputError(f"arguments of {actor.name}: a process can't be started with a promise; use its value")
    return encoded.text, key_of(actor.name, actor.key, actor.function, args, kwargs) if actor.key is not None else None
