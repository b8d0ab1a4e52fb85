"""Strategies by name, and errors by name: what a task keeps of a retry that its caller asked for.

A strategy is code, and a task's record can't hold code. So it holds the strategy's name, by which the application of
the worker that runs the task finds it.
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
"""Errors that one task may name."""
_ERROR_NAME = r"[A-Za-z_][\w.]{0,199}"


class NamedStrategies:
    """The strategies of one application. `best_effort` is there from the beginning."""

    def __init__(self) -> None:
        self._by_name: dict[str, RetryStrategy] = {"best_effort": BestEffort()}

    def add(self, name: Any, strategy: Any) -> RetryStrategy:
        """Register a strategy, and return it.

        Raises:
            InputError: It is no strategy, or the name is taken or can't be one.
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
        """Return the strategy of this name."""
        return self._by_name.get(name)

    def name_of(self, strategy: RetryStrategy) -> str | None:
        """Return the name of a strategy that is registered."""
        by_identity = (name for name, one in self._by_name.items() if one is strategy)
        return next(by_identity, next((name for name, one in self._by_name.items() if one == strategy), None))

    def options_of(self, value: Any, where: str) -> RetryOptions | None:
        """Return what a task keeps of `retry=`; None for True, which says nothing new.

        Raises:
            InputError: It is no policy and no strategy, or a strategy without a name.
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
    """Return a value that is a strategy. Raises InputError."""
    if isinstance(value, type) or not callable(getattr(value, "retry_after", None)):
        raise InputError(
            f"{where}={given.shown(value)} must be a Backoff(...), None for no retry, or a strategy, which has a "
            "method `async def retry_after(self, request, reason)`"
        )
    strategy: RetryStrategy = value
    return strategy


def names_of_errors(errors: Iterable[Any], where: str) -> tuple[str, ...]:
    """Return the errors that a caller knows to be transient as a task keeps them: full names of classes, and codes.

    Args:
        errors: Classes of errors, their full names, and codes by number or by name.
        where: What the error message begins with.

    Raises:
        InputError: One of them is none of these, or there are more than MAX_RETRYABLE.
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
    """Return whether an error is one of those that a task names."""
    return not {*names}.isdisjoint((*types, str(code.number), code.name))
