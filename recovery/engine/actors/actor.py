"""Actors: Python functions that do tasks. `actor.schedule(...)` inside another actor makes a task."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from recovery.engine.actors.context import current
from recovery.engine.actors.strategies import NamedStrategies, names_of_errors
from recovery.errors import InputError
from recovery.limits import LONGEST, NAME
from recovery.records import ActorPreferences, Encoded, ProcessTypePreferences, Promise, RetryOptions, given
from recovery.records.ids import is_reserved
from recovery.records.preferences import check
from recovery.records.values import encode
from recovery.retry import Backoff, ErrorCode, RetryStrategy

CONTEXT_BYTES = 2048
"""Of the context of a task: it is kept with each task."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Actor(Generic[P, R]):
    """A function under a name. Calling it runs the function here and now; `schedule` makes a task of it.

    The name is also that of its queue, and is stored with every task: keep it when you rename the function.
    """

    function: Callable[P, R]
    preferences: ActorPreferences
    process_type: ProcessTypePreferences | None = None
    """Its settings as a process type, if it is one."""
    strategy: RetryStrategy | None = None
    """Its own, in the place of the policy that its settings say."""
    key: Callable[..., Any] | None = None
    """Of a process type: what of it a process is for, by its arguments."""
    strategies: NamedStrategies = field(default_factory=NamedStrategies, repr=False, compare=False)
    """Strategies that a task may name."""
    _eta: datetime | None = None
    _delay: float | None = None
    _fallible: bool = False
    _retry: RetryOptions | None = None
    _context: str | None = None

    @property
    def name(self) -> str:
        return self.preferences.id

    def __post_init__(self) -> None:
        # Shown by help() and found by inspect.unwrap(); the class is frozen, so functools can't set them.
        for name, value in (("__wrapped__", self.function), ("__doc__", self.function.__doc__)):
            object.__setattr__(self, name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def schedule(self, *args: Any, **kwargs: Any) -> Promise:
        """Make a task of this actor, from inside a running actor; a promise of its value.

        Arguments are JSON values, and promises anywhere in them: the task runs once those are kept, and gets
        the values in their place. Raises NotInActor, NotEncodable, TooLarge, InputError.
        """
        attempt = current(f"{self.name}.schedule(...)")
        self.check_call(args, kwargs)
        encoded = encode_call(self.name, args, kwargs)
        return attempt.add_child(
            self.name,
            encoded,
            self._eta,
            self._delay,
            self._fallible or None,
            retry=self._retry,
            context=self._context,
        )

    def check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise InputError unless the function can be called like this."""
        if (why := self.why_not_callable(args, kwargs)) is not None:
            raise InputError(f"{self.name}{_signature(self.function)}: {why}")

    def why_not_callable(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return why the function can't be called like this, or None if it can. Does not call it."""
        signature = _signature(self.function)
        try:
            if signature is not None:
                signature.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return None

    def options(
        self,
        *,
        eta: datetime | None = None,
        delay: timedelta | float | str | None = None,
        fallible: bool = False,
        retry: Backoff | RetryStrategy | bool | None = True,
        retryable: Iterable[type[BaseException] | ErrorCode | int | str] = (),
        context: Mapping[str, Any] | None = None,
    ) -> Actor[P, R]:
        """Return this actor with options for the tasks that are scheduled with it.

        `app.start(actor.options(...))` takes `retry`, `retryable` and `context`.

        Args:
            eta: The task does not run before this moment. An aware datetime.
            delay: How long after it became ready the task runs, in seconds, as a timedelta, or as a text such as `5s`.
            fallible: A task that fails for good does not break its process; what waits for its value gets a `Failure`.
                What the task itself schedules is fallible only if it is scheduled so.
            retry: What `@app.actor(retry=...)` takes: a `Backoff(...)`, None for no retry, or a strategy. A strategy
                needs a name (`app.strategy`), unless an actor or the application is registered with it.
            retryable: Errors that this caller knows to be transient, whatever the catalogues say: classes, or codes by
                number or name. An example is a document that is not found yet.
            context: What the retry strategy may read; JSON.

        Raises:
            InputError: A value can't be what it is given for.
        """
        if eta is not None:
            said, eta = given.shown(eta), _moment(eta)
            if eta is None:
                raise InputError(f"{self.name}.options(eta={said}): must be a datetime with a time zone")
        if eta is not None and eta.tzinfo is None:
            raise InputError(f"{self.name}.options(eta={eta}): give it a time zone, for example timezone.utc")
        if eta is not None and not _is_near(eta):
            raise InputError(f"{self.name}.options(eta={eta}): must be at most 10 years from now")
        try:
            seconds = given.duration(delay)
        except ValueError as error:
            raise InputError(f"{self.name}.options(delay={given.shown(delay)}): {error}") from None
        if delay is not None and (seconds is None or not 0 <= seconds <= LONGEST):
            raise InputError(f"{self.name}.options(delay={given.shown(delay)}): must be from 0 seconds to 10 years")
        if not isinstance(fallible, bool):
            raise InputError(f"{self.name}.options(fallible={given.shown(fallible)}): must be True or False")
        own = self.strategies.options_of(retry, f"{self.name}.options(...)")
        if named := names_of_errors(retryable, f"{self.name}.options(retryable="):
            own = (own or RetryOptions()).evolve(retryable=named)
        text = None if context is None else _context_text(context, self.name)
        return replace(self, _eta=eta, _delay=seconds, _fallible=fallible, _retry=own, _context=text)

    def strategy_for(self, options: RetryOptions) -> RetryStrategy | None:
        """Return the strategy that decides about a task with these options: the task's own, else this actor's.

        None for a policy. A strategy that this application does not have is replaced by the actor's.
        """
        if options.strategy is not None:
            return self.strategies.find(options.strategy) or self.strategy
        return None if options.initial is not None else self.strategy

    @property
    def start_options(self) -> tuple[RetryOptions | None, str | None]:
        """What a process that is started with this is told about retry. Raises InputError for options that only a
        scheduled task has."""
        if self._eta is not None or self._delay is not None or self._fallible:
            raise InputError(
                f"app.start({self.name}.options(...)): a process starts at once, and is not fallible; only `retry` and "
                "`context` can be given at its start"
            )
        return self._retry, self._context


def _moment(value: Any) -> datetime | None:
    """A time as an exact datetime; None for what is none. Its time zone is somebody else's code, so what that says of
    this moment is all that is kept of it."""
    try:
        return datetime.fromisoformat(datetime.isoformat(value))
    except Exception:
        return None


def _is_near(eta: datetime) -> bool:
    try:
        return eta.astimezone(UTC) - datetime.now(UTC) <= timedelta(seconds=LONGEST)
    except OverflowError:
        return False  # a date that its time zone moves out of the calendar: nobody could store it


@lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None  # some of Python's own, such as max, have none: a wrong call fails when it runs


def check_function(name: str, function: Callable[..., Any]) -> None:
    """Raise InputError for what is no function, and for a function whose call gives no value: what it gives is to be
    awaited or iterated over, and each of its tasks would end with an error."""
    if isinstance(function, type):
        raise InputError(f"actor {name} is a class, and its tasks would have objects as values: register a function")
    # The `schedule` of another actor is the same in each worker.
    if isinstance(function, MethodType) and not isinstance(function.__self__, Actor):
        raise InputError(
            f"actor {name} is a method of an object, and each worker would have another object: register a function "
            "that makes what it needs, or gets it as arguments"
        )
    if not callable(function):
        raise InputError(f"actor {name} is {given.shown(function)}, which can't be called: register a function")
    # What is called of an object that is no function stands in its class.
    called = [function, inspect.getattr_static(type(function), "__call__", None)]
    if any(map(inspect.iscoroutinefunction, called)):
        raise InputError(
            f"actor {name} is `async def`, and workers call plain functions: write `def {name}(...)`, which runs it by "
            "`asyncio.run(...)`; for many tasks at once there is `recovery worker --pool threads`"
        )
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called):
        raise InputError(
            f"actor {name} is a generator (it has a `yield`), and a task has one value: return a list, or schedule a "
            "task for each part"
        )


def call_of(name: str, number: int, one: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments of one of many starts. Raises InputError."""
    if isinstance(one, list | tuple):
        return tuple(one), {}
    if isinstance(one, Mapping):
        return (), dict(one)
    raise InputError(
        f"arguments[{number}] of {name} is {given.shown(one)}: give a list or tuple of what it is called with, such as "
        "[10], or a dict of that by name"
    )


def encode_call(actor: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Encoded:
    """The JSON text `[positional, named]` of a call's arguments."""
    return encode([list(args), kwargs], f"arguments of {actor}")


def _context_text(context: Any, name: str) -> str:
    if not isinstance(context, Mapping):
        raise InputError(f"{name}.options(context={given.shown(context)}): must be a dict")
    encoded = encode(dict(context), f"context of {name}")
    if encoded.promises:
        raise InputError(f"{name}.options(context=...): holds a promise, whose value strategies can't wait for")
    if len(encoded.text.encode()) > CONTEXT_BYTES:
        raise InputError(f"{name}.options(context=...): must be at most {CONTEXT_BYTES:,} bytes of JSON")
    return encoded.text


def preferences(name: str, **changes: Any) -> ActorPreferences:
    """Checked settings of an actor. Raises InputError for a name or value that can't be."""
    if not (isinstance(name, str) and re.fullmatch(NAME, name)):
        wanted = "use letters, digits, '_', '.', '-', at most 100, first a letter or '_'"
        raise InputError(f"actor name {given.shown(name)}: {wanted}")
    name = given.exact(name)
    if is_reserved(name):
        raise InputError(
            f"actor name {name!r}: Celery or we use it, as all that begins with 'celery.' or 'recovery.'; take another"
        )
    result = ActorPreferences(id=name, **changes)
    check(result)
    return result
