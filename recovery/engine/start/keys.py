"""The key of a process: what of its type it is for, by the function that the type was declared with.

The function gets the arguments by their names, with their defaults, as the process's own function would; those that
have no name by their place. Its answer is kept in the process's record, so whoever breaks that later needs no code.
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
"""Characters of a key: it is to be read, and typed, as part of a marker's name."""

KeyFunction = Callable[..., Any]


def check_key_function(name: str, function: Any) -> KeyFunction | None:
    """Raise InputError for a key function that can't be called."""
    if function is None or callable(function):
        found: KeyFunction | None = function
        return found
    wanted = "a function of the process's arguments, such as `lambda database, **_: database`"
    raise InputError(f"process type {name}: key={given.shown(function)}: must be {wanted}")


def key_of(
    name: str, key: KeyFunction, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """The key of a process that is called so; None: it is for its type as a whole. Raises InputError."""
    positional, named = _by_name(function, args, kwargs)
    try:
        value = key(*positional, **named)
    except Exception as error:  # somebody else's code
        said = f"{type(error).__name__}: {error}"[:300]
        raise InputError(
            f"process type {name}: its key function raised {said}. Nothing was started; correct the function, which "
            "gets the arguments by their names, or the arguments"
        ) from error
    if value is None:
        return None
    number = given.number(value)
    text = str(number) if number is not None and given.is_finite(number) else value
    if not isinstance(text, str) or not _is_key(text := given.exact(text)):
        wanted = f"a text of 1 to {MAX_LENGTH} characters that can be seen, a number, or None for the type as a whole"
        raise InputError(
            f"process type {name}: its key function gave {given.shown(value)}, which is no key: it must give {wanted}. "
            "Nothing was started"
        )
    return text


def _is_key(text: str) -> bool:
    return 0 < len(text) <= MAX_LENGTH and given.is_unicode(text) and printable(text) == text and text == text.strip()


def _by_name(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a call, by name as far as they have one."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # one of Python's own, which has no signature
        return args, kwargs
    bound.apply_defaults()
    kinds = {parameter.name: parameter.kind for parameter in bound.signature.parameters.values()}
    if any(kind is inspect.Parameter.VAR_POSITIONAL and bound.arguments.get(n) for n, kind in kinds.items()):
        return bound.args, bound.kwargs
    positional = [value for n, value in bound.arguments.items() if kinds[n] is inspect.Parameter.POSITIONAL_ONLY]
    named: dict[str, Any] = {}
    for n, value in bound.arguments.items():
        if kinds[n] is inspect.Parameter.VAR_KEYWORD:
            named |= value
        elif kinds[n] not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            named[n] = value
    return positional, named


def encode_start(actor: Actor[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str | None]:
    """Return the JSON text of what a process is started with, and its key. Raises InputError."""
    actor.check_call(args, kwargs)
    encoded = encode_call(actor.name, args, kwargs)
    if encoded.promises:
        raise InputError(f"arguments of {actor.name}: a process can't be started with a promise; use its value")
    return encoded.text, key_of(actor.name, actor.key, actor.function, args, kwargs) if actor.key is not None else None
