"""Read settings as application code writes them: `retry=Backoff(...)`, and durations as texts or timedeltas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from recovery.engine.actors.actor import preferences
from recovery.engine.actors.strategies import check_strategy
from recovery.engine.lookup import hint
from recovery.errors import InputError
from recovery.records import ActorPreferences, ProcessTypePreferences, RetryOptions, given
from recovery.records.preferences import FACTORS, RATES, Preferences, check, setting_names, type_of
from recovery.retry import Backoff, RetryStrategy
from recovery.retry.policy import check_policy

RETRY = "retry"
"""The setting that takes a policy or a strategy."""


def actor_preferences(
    function: Callable[..., Any], name: str | None, settings: Mapping[str, Any], others: Sequence[str] = ()
) -> ActorPreferences:
    """Return the settings of a function as an actor.

    Args:
        function: The function.
        name: The name of the actor. The default is the function's name.
        settings: The settings as the code gives them.
        others: Names of further settings that an error message may suggest.

    Raises:
        InputError: The name or a setting is unknown or not allowed.
    """
    named = name or given.text(getattr(function, "__name__", None), "name of an actor")
    known = setting_names(ActorPreferences)
    for unknown in settings.keys() - set(known):
        suggestion = hint(unknown, sorted([*known, *others]), "there are none")
        raise InputError(f"actor {named}: no setting is named {unknown!r}; {suggestion}")
    checked = preferences(named, **as_settings(ActorPreferences, settings, f"actor {named}"))
    check_policy(checked.retry_options(), f"actor {named}")
    return checked


def type_preferences(name: str, settings: Mapping[str, Any]) -> ProcessTypePreferences:
    """Return the settings of a process type. Raises InputError for a value that is not allowed."""
    owner = f"process type {name}"
    checked = ProcessTypePreferences(id=name, **as_settings(ProcessTypePreferences, settings, owner))
    check(checked)
    check_policy(checked.retry_options(), owner)
    return checked


def says_of_retry(settings: Iterable[str]) -> bool:
    """Return whether any of these settings is about retries."""
    return any(name == RETRY or name.startswith(f"{RETRY}_") for name in settings)


def as_settings(kind: type[Preferences], said: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return {setting: value} as they are stored.

    A value of a wrong type stays as it is, and `check` refuses it later.

    Args:
        kind: The kind of settings.
        said: The settings as the code gives them.
        of: What errors call the actor or the process type.

    Raises:
        InputError: A text is not a duration, or a part of the retry policy is given twice.
    """
    settings = {name: _value(kind, name, value, of) for name, value in said.items() if name != RETRY}
    if RETRY not in said:
        return settings
    policy = said[RETRY]
    if policy is None or isinstance(policy, bool):
        return {**settings, RETRY: bool(policy)}
    if isinstance(policy, Backoff):
        duplicates = [name for name in settings if name.startswith(f"{RETRY}_")]
        if duplicates:
            raise InputError(f"{of}: {duplicates[0]} is given twice, by itself and in retry={policy}; keep one of them")
        return {**settings, **_flat(policy.options())}
    return {**settings, RETRY: True}  # a strategy is code, so it is not stored


def strategy_of(said: Mapping[str, Any], of: str) -> RetryStrategy | None:
    """Return the retry strategy among these settings, or None if there is none. Raises InputError if `retry` is neither
    a strategy nor a policy."""
    value = said.get(RETRY)
    if value is None or isinstance(value, bool | Backoff):
        return None
    return check_strategy(value, f"{of}: retry")


def _flat(options: RetryOptions) -> dict[str, Any]:
    return {
        RETRY: True,
        "retry_initial": options.initial,
        "retry_coefficient": options.coefficient,
        "retry_jitter_least": options.jitter_least,
        "retry_jitter_most": options.jitter_most,
        "retry_maximum": options.maximum,
        "retry_total": options.total,
    }


def _value(kind: type[Preferences], name: str, value: Any, owner: str) -> Any:
    is_time = name in setting_names(kind) and type_of(kind, name) is float and name not in RATES | FACTORS
    if not is_time:
        return value
    try:
        return given.duration(value) if isinstance(value, timedelta | str) else value
    except ValueError as error:
        raise InputError(f"{owner}: {name}={given.shown(value)}: {error}") from None
