"""Settings as the code of an application writes them: `retry=Backoff(...)`, and times as texts or timedeltas."""

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


def actor_preferences(
    function: Callable[..., Any], name: str | None, settings: Mapping[str, Any], others: Sequence[str] = ()
) -> ActorPreferences:
    """The settings of a function as an actor, named by its own name if no other is given; `others` are settings that
    there are beside an actor's. Raises InputError."""
    named = name or given.text(getattr(function, "__name__", None), "name of an actor")
    known = setting_names(ActorPreferences)
    for unknown in settings.keys() - set(known):
        near = hint(unknown, sorted([*known, *others]), "there are none")
        raise InputError(f"actor {named}: no setting is named {unknown!r}; {near}")
    checked = preferences(named, **as_settings(ActorPreferences, settings, f"actor {named}"))
    check_policy(checked.retry_options(), f"actor {named}")
    return checked


def type_preferences(name: str, settings: Mapping[str, Any]) -> ProcessTypePreferences:
    """The settings of a process type. Raises InputError."""
    of = f"process type {name}"
    checked = ProcessTypePreferences(id=name, **as_settings(ProcessTypePreferences, settings, of))
    check(checked)
    check_policy(checked.retry_options(), of)
    return checked


def says_of_retry(settings: Iterable[str]) -> bool:
    """Whether any of these settings is of retry."""
    return any(name == RETRY or name.startswith(f"{RETRY}_") for name in settings)


def as_settings(kind: type[Preferences], said: Mapping[str, Any], of: str) -> dict[str, Any]:
    """{setting: value} as they are kept, of what was `said` of an actor or process type. What can't be one stays as it
    is, and is refused with the others."""
    settings = {name: _value(kind, name, value, of) for name, value in said.items() if name != RETRY}
    if RETRY not in said:
        return settings
    policy = said[RETRY]
    if policy is None or isinstance(policy, bool):
        return {**settings, RETRY: bool(policy)}
    if isinstance(policy, Backoff):
        doubly = [name for name in settings if name.startswith(f"{RETRY}_")]
        if doubly:
            raise InputError(f"{of}: {doubly[0]} is given twice, by itself and in retry={policy}; keep one of them")
        return {**settings, **_flat(policy.options())}
    return {**settings, RETRY: True}  # a strategy, which is kept in the code


def strategy_of(said: Mapping[str, Any], of: str) -> RetryStrategy | None:
    """The strategy among what was said, if it is one. Raises InputError for what is neither that nor a policy."""
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


def _value(kind: type[Preferences], name: str, value: Any, of: str) -> Any:
    is_time = name in setting_names(kind) and type_of(kind, name) is float and name not in RATES | FACTORS
    if not is_time:
        return value
    try:
        return given.duration(value) if isinstance(value, timedelta | str) else value
    except ValueError as error:
        raise InputError(f"{of}: {name}={given.shown(value)}: {error}") from None
