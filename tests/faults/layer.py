"""The steps that can fail, and how they are wrapped."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar
from unittest.mock import patch

from pymongo.collection import Collection
from pymongo.errors import AutoReconnect
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

import recovery.store
from recovery.store.driver_errors import ours
from tests.faults import halves
from tests.faults.plan import Plan

WITHIN_LOCKS = ("recovery.store.lifecycle.preferences",)
"""Modules whose steps take others under a lock, once in a while: those are a part of them, and no places to pause."""

Told = Callable[[str, tuple[Any, ...], Any], None]
"""Called with the name of a step, its arguments (without self) and its result, of every step that was done."""

_thread = threading.local()


@functools.cache
def owners() -> list[type]:
    """The store and its collections: every class of it that is more than data."""
    modules = [recovery.store, *(importlib.import_module(m.name) for m in _modules())]
    classes = {cls for module in modules for cls in vars(module).values() if inspect.isclass(cls)}
    ours = [cls for cls in classes if cls.__module__.startswith("recovery.store")]
    return sorted((cls for cls in ours if not dataclasses.is_dataclass(cls)), key=lambda cls: cls.__name__)


def steps() -> dict[str, tuple[type, str]]:
    """{name of a step: its class and method}, of all steps but those that are `reach`ed and the one of Redis."""
    return {
        f"{owner.__name__}.{name}": (owner, name)
        for owner in owners()
        for name, method in vars(owner).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


def _modules() -> Iterator[pkgutil.ModuleInfo]:
    return pkgutil.walk_packages(recovery.store.__path__, "recovery.store.")


@contextmanager
def installed(told: Told | None = None) -> Iterator[None]:
    """Within, all steps are wrapped; `told` is told of each that was done, under a plan or not."""
    with ExitStack() as wrapped:
        for name, (owner, method) in steps().items():
            wrapped.enter_context(patch.object(owner, method, _wrap(name, vars(owner)[method], _lost, told)))
        # Pushes and depths alike; how a failed push is taken is the broker's to show.
        step = _wrap("Pipeline.execute", Pipeline.execute, RedisConnectionError, None)
        wrapped.enter_context(patch.object(Pipeline, "execute", step))
        wrapped.enter_context(patch.object(Collection, "bulk_write", halves.wrapped(Collection.bulk_write)))
        yield


P = TypeVar("P", Plan, None)


@contextmanager
def under(plan: P) -> Iterator[P]:
    """Within, the steps that this thread takes are under the plan, or under none."""
    before, _thread.plan = getattr(_thread, "plan", None), plan
    try:
        yield plan
    finally:
        _thread.plan = before


def reach(name: str) -> None:
    """A place in the test's own code that a plan counts as a step. No connection can be lost there."""
    plan = getattr(_thread, "plan", None)
    if plan is not None:
        plan.take(name, lambda: None, None)


def pause(name: str) -> None:
    """A place in the test's own code where whoever comes there, a `Course`, lets others act."""
    plan: Plan = _thread.plan
    assert plan.pause is not None
    plan.pause(name)


def _lost(text: str) -> Exception:
    """What the store makes of a lost connection."""
    return ours(AutoReconnect(text))


def _wrap(name: str, real: Callable[..., Any], lost: Callable[[str], Exception], told: Told | None) -> Any:
    alone = real.__module__ in WITHIN_LOCKS

    @functools.wraps(real)
    def done(*args: Any, **kwargs: Any) -> Any:
        with under(None) if alone else nullcontext():
            result = real(*args, **kwargs)
        if told is not None:
            told(name, args[1:], result)
        return result

    @functools.wraps(real)
    def step(*args: Any, **kwargs: Any) -> Any:
        plan: Plan | None = getattr(_thread, "plan", None)
        return done(*args, **kwargs) if plan is None else plan.take(name, done, lost, *args, **kwargs)

    return step
