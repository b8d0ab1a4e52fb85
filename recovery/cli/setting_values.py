"""Settings of actors and process types on the command line: their texts, where their values come from, and what a
change does not reach by itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from recovery.errors import InputError
from recovery.limits import MAX_COUNT
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.records.preferences import (
    CHOICES,
    FACTORS,
    RATES,
    Preferences,
    Stored,
    default_of,
    setting_names,
    type_of,
)
from recovery.wording import EXAMPLES, parse_duration, show_duration

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DIGITS = 100
INHERITED = "–"
"""A setting that nobody has set, and that another one decides."""
_SWITCHES = {"true": True, "false": False}


def parse(kind: type[Preferences], assignments: Sequence[str], of: str = "NAME") -> dict[str, Any]:
    """Return {setting: value} of texts like `worker_timeout=90s`, for the actor or process type named `of`.

    Raises InputError for a text that can't be read, and for a setting that is given twice.
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment!r}: must be SETTING=VALUE, for example {setting_names(kind)[0]}=90s")
        check_names(kind, [name], f"set {of} {assignment}")
        if name in changes:
            raise InputError(f"{name} is given twice: which of them holds?")
        changes[name] = _value(name, text, type_of(kind, name))
    return changes


def check_names(kind: type[Preferences], names: Sequence[str], command: str) -> None:
    """Raise InputError for a name that is no setting of this kind; one of the other kind is set by another command, of
    which `command` is the end."""
    from recovery.engine.operators.overrides import known_settings

    other = ProcessTypePreferences if kind is ActorPreferences else ActorPreferences
    for name in names:
        if name in setting_names(other) and name not in setting_names(kind):
            if kind is ActorPreferences:
                raise InputError(f"{name} is a setting of process types: `recovery process-type {command}`")
            # A process type is an actor as well.
            raise InputError(f"{name} is a setting of actors: `recovery actor {command}`")
    known_settings(kind, names)


def _value(name: str, text: str, of_type: type) -> Any:
    if name in CHOICES:
        return text  # which of the words there are is checked with the others
    if of_type is bool:
        return _switch(name, text)
    if of_type is int:
        return _whole_number(name, text)
    if name in RATES:
        return _rate(name, text)
    if name in FACTORS:
        return _factor(name, text)
    return _seconds(name, text)


def _switch(name: str, text: str) -> bool:
    if text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    raise InputError(f"{name}={text}: must be true or false")


def _whole_number(name: str, text: str) -> int:
    # `int` refuses texts of thousands of digits with an error of its own. A shorter number that is too large is
    # refused later, with its limit.
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS:
        return int(text)
    raise InputError(f"{name}={text[:_DIGITS]}: must be a whole number, up to {MAX_COUNT:,}")


def _rate(name: str, text: str) -> float:
    if found := _NUMBER.fullmatch(text.removesuffix("/s")):
        return float(found[0])
    raise InputError(f"{name}={text}: must be a number of tasks a second, for example 50 or 0.5")


def _factor(name: str, text: str) -> float:
    if found := _NUMBER.fullmatch(text):
        return float(found[0])
    raise InputError(f"{name}={text}: must be a number, for example 1.2")


def _seconds(name: str, text: str) -> float:
    try:
        if "e" in text:  # settings in a file may be computed; what a person types as 1e3 is a slip
            raise ValueError(f"must be a duration, for example {EXAMPLES}")
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"{name}={text[:_DIGITS]}: {error}") from None


def describe_settings(stored: Stored[Any]) -> dict[str, dict[str, Any]]:
    """Return the value and the origin of each setting, by name. A setting of an operator also has the value of the
    code."""
    found: dict[str, dict[str, Any]] = {}
    for name in setting_names(type(stored.code)):
        # A time may have been given as a whole number.
        of_type, code = type_of(type(stored.code), name), getattr(stored.code, name)
        code = None if code is None else of_type(code)
        if name in stored.overrides:
            found[name] = {"value": of_type(stored.overrides[name]), "from": "operator", "code": code}
        else:
            found[name] = {"value": code, "from": "default" if code == default_of(type(stored.code), name) else "code"}
    return found


def rows(settings: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and origin of each setting, for people."""
    for name, one in settings.items():
        origin = f"set; the code says {shown(name, one['code'])}" if one["from"] == "operator" else one["from"]
        if one["value"] is None:
            origin = _while_unset(name)
        yield name, shown(name, one["value"]), origin


def _while_unset(name: str) -> str:
    """Return what holds for a setting that neither code nor operator has set."""
    from recovery.retry.policy import DEFAULT

    options, prefix = DEFAULT.options(), "retry_"
    if not name.startswith("retry"):
        return "not set: as idempotent says"
    value = getattr(options, name.removeprefix(prefix)) if name.startswith(prefix) else True
    return f"not set: {shown(name, value)}, unless process type, actor or task says otherwise"


def effective_line(stored: Stored[Any], names: Iterable[str]) -> str:
    """Return the values that hold now, and where each comes from, on one line."""
    words = {"operator": "set", "code": "by the code", "default": "by default"}
    found = describe_settings(stored)
    return ", ".join(f"{name}={shown(name, found[name]['value'])} ({words[found[name]['from']]})" for name in names)


def overridden(settings: dict[str, dict[str, Any]]) -> str:
    """Return what operators set, on one line."""
    return ", ".join(
        f"{name}={shown(name, one['value'])}" for name, one in settings.items() if one["from"] == "operator"
    )


def shown(name: str, value: Any) -> str:
    """Return a setting's value as it may be given to `set`."""
    if value is None:
        return INHERITED
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    if name in FACTORS:
        return f"{value:g}"
    return f"{value:g}/s" if name in RATES else show_duration(value)


# All settings are read whenever something is decided by them, and deadlines that they make too late are moved. What
# follows is the rest: what goes on as it was.
OF_ATTEMPTS = ("worker_timeout", "accept_first", "idempotent", "auto_heartbeat", "retry")
"""What an attempt takes with it when it begins, and all of `retry_…`."""
_RETRY = "retry_"


def not_reached(effective: ActorPreferences | ProcessTypePreferences, changed: Collection[str]) -> list[str]:
    """Return a sentence for each kind of thing that goes on as before, although these settings were changed."""
    told = _of_attempts(changed) if isinstance(effective, ActorPreferences) else _of_processes(effective, changed)
    return [*told, *_of_retries(changed)]


def _of_attempts(changed: Collection[str]) -> Iterator[str]:
    if names := [name for name in changed if name in OF_ATTEMPTS or name.startswith(_RETRY)]:
        yield f"attempts that run keep the {', '.join(names)} that they began with"


def _of_processes(effective: ProcessTypePreferences, changed: Collection[str]) -> Iterator[str]:
    if "idle_timeout" in changed:
        words = f"type:{effective.id}", "--idle-timeout", show_duration(effective.idle_timeout)
        yield (
            "processes that were started already keep the idle_timeout that they have; "
            f"`recovery operation start set_idle_timeout {shlex.join(words)} --reason …` gives it to them"
        )


def _of_retries(changed: Collection[str]) -> Iterator[str]:
    if any(name.startswith(_RETRY) for name in changed):
        yield "tasks that wait for a retry wait as long as they were to"
