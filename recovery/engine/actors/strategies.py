"""The names of retry strategies and of errors, as the record of a task stores them.

A strategy is code, which a record cannot hold. So the record holds the strategy's name, and the application of the
worker that runs the task finds the strategy by its name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from recovery.errors import InputError
from recovery.limits import NAME
from recovery.records import RetryOptions, given
from recovery.retry import Backoff, BestEffort, Durable, ErrorCode, RetryStrategy
from recovery.retry.codes import class_of

log = logging.getLogger(__name__)

MAX_RETRYABLE = 20
"""Maximum number of errors that one task can name."""
_ERROR_NAME = r"[A-Za-z_][\w.]{0,199}"


class NamedStrategies:
    """The retry strategies of one application, by name. The strategy `best_effort` always exists."""

    def __init__(self) -> None:
        self._by_name: dict[str, RetryStrategy] = {"best_effort": BestEffort()}

    def add(self, name: Any, strategy: Any) -> RetryStrategy:
        """Register a strategy, and return it.

        Raises:
            InputError: It is not a strategy, or the name is not allowed or belongs to another strategy.
        """
        where = f"app.strategy({given.shown(name)}, ...)"
        if not (isinstance(name, str) and re.fullmatch(NAME, name)):
            raise InputError(f"{where}: use letters, digits, '_', '.', '-', at most 100, first a letter or '_'")
        checked = check_strategy(strategy, f"{where}: strategy")
        if self._by_name.get(name, checked) is not checked:
            raise InputError(f"{where}: another strategy has this name; give one of them another")
        self._by_name[name] = checked
        return checked

    def add_own(self, name: str, strategy: RetryStrategy) -> None:
        """Register the strategy of an actor, or of the application, unless it has a name already."""
        if self.name_of(strategy) is None:
            self._by_name[name] = strategy

    def find(self, name: str) -> RetryStrategy | None:
        """Return the strategy with this name, or None."""
        return self._by_name.get(name)

    def name_of(self, strategy: RetryStrategy) -> str | None:
        """Return the name of a registered strategy, or None."""
        by_identity = (name for name, registered in self._by_name.items() if registered is strategy)
        return next(
            by_identity, next((name for name, registered in self._by_name.items() if registered == strategy), None)
        )

    def options_of(self, value: Any, where: str) -> RetryOptions | None:
        """Return what a task stores of its option `retry=`. Return None for True, which sets nothing.

        Raises:
            InputError: The value is neither a policy nor a strategy, or it is a strategy without a name.
        """
        if value is True:
            return None
        if value is None or value is False:
            return RetryOptions(enabled=False)
        if isinstance(value, Backoff):
            return value.options()
        strategy = check_strategy(value, f"{where}: retry")
        if isinstance(strategy, Durable):
            return strategy.policy.options()
        if (name := self.name_of(strategy)) is None:
            kind = type(strategy).__name__
            raise InputError(
                f"{where}: this {kind} has no name, and the task's record can keep only that. Register it once, where "
                f"workers import it as well: strategy = app.strategy('a-name', {kind}(...))"
            )
        return RetryOptions(enabled=True, strategy=name)


def check_strategy(value: Any, where: str) -> RetryStrategy:
    """Return the value if it is a strategy. Raises InputError, whose message begins with `where`, otherwise."""
    if isinstance(value, type) or not callable(getattr(value, "retry_after", None)):
        raise InputError(
            f"{where}={given.shown(value)} must be a Backoff(...), None for no retry, or a strategy, which has a "
            "method `async def retry_after(self, request, reason)`"
        )
    strategy: RetryStrategy = value
    return strategy


def names_of_errors(errors: Iterable[Any], where: str) -> tuple[str, ...]:
    """Return errors that are transient for a task, in the form that the task's record stores.

    Args:
        errors: Classes of errors, their full names, and codes by number or by name.
        where: The beginning of an error message.

    Returns:
        Full names of classes, and codes.

    Raises:
        InputError: An item is none of these, or there are more than MAX_RETRYABLE.
    """
    if isinstance(errors, str | type) or not isinstance(errors, Iterable):
        raise InputError(f"{where}{given.shown(errors)}): must be a list of classes of errors, or of codes")
    names = dict.fromkeys(_name_of_error(error, where) for error in errors)
    if len(names) > MAX_RETRYABLE:
        raise InputError(f"{where}...): names {len(names)} errors; at most {MAX_RETRYABLE} are kept")
    return tuple(names)


def _name_of_error(error: Any, where: str) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return f"{error.__module__}.{error.__qualname__}"
    if isinstance(error, ErrorCode):
        return str(error.number)
    if type(error) is int:
        class_of(error)
        return str(error)
    if isinstance(error, str) and re.fullmatch(_ERROR_NAME, error):
        return error
    raise InputError(
        f"{where}...): {given.shown(error)} must be a class of errors, its full name 'package.module.Name', or a code "
        "such as 27001 or 'LEDGER_CLOSED'"
    )


def is_named(names: Sequence[str], types: Sequence[str], code: ErrorCode) -> bool:
    """Return whether an error is among those that a task names. `types` are the full names of its classes."""
    return not {*names}.isdisjoint((*types, str(code.number), code.name))
