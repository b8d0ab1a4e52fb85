"""Actors: Python functions that do tasks. `actor.schedule(...)`, called in a running actor, makes a task."""

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
"""Maximum size of a task's retry context, in bytes of JSON. The context is stored with each task."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Actor(Generic[P, R]):
    """A function that is registered under a name.

    Calling an actor runs its function at once, like any function. `schedule` makes a task of it, which a worker runs.

    The name is also the name of the actor's queue, and it is stored with every task. Keep it when you rename the
    function.

    Example:
        @app.process()
        def order(item):
            price = look_up_price.schedule(item)  # a promise of the price
            return ship.schedule(item, price)  # runs once the price is known
    """

    function: Callable[P, R]
    preferences: ActorPreferences
    process_type: ProcessTypePreferences | None = None
    """The actor's settings as a process type. None if no process can be started with it."""
    strategy: RetryStrategy | None = None
    """The actor's own retry strategy. It is used in place of the retry policy in the settings."""
    key: Callable[..., Any] | None = None
    """Only of a process type: a function of a process's arguments that returns what the process is for."""
    strategies: NamedStrategies = field(default_factory=NamedStrategies, repr=False, compare=False)
    """The strategies that a task can name."""
    _eta: datetime | None = None
    _delay: float | None = None
    _fallible: bool = False
    _retry: RetryOptions | None = None
    _context: str | None = None

    @property
    def name(self) -> str:
        """The name of the actor and of its queue."""
        return self.preferences.id

    def __post_init__(self) -> None:
        # For help() and inspect.unwrap(). functools cannot set them, because the class is frozen.
        for name, value in (("__wrapped__", self.function), ("__doc__", self.function.__doc__)):
            object.__setattr__(self, name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def schedule(self, *args: Any, **kwargs: Any) -> Promise:
        """Make a task of this actor, and return a promise of the task's value.

        Call this method in the function of a running actor. The task becomes a child of the running task. It is created
        when the result of the running attempt is accepted. If the attempt fails, it is not created.

        Args:
            *args: Positional arguments: JSON values. They may contain promises anywhere. The task runs once all
                promised values exist, and gets the values in the place of the promises.
            **kwargs: Named arguments, with the same rules.

        Returns:
            A promise. Pass it to another task of this function, or return it as a part of this function's value.

        Raises:
            NotInActor: No actor runs in this thread.
            InputError: The function cannot be called with these arguments, or a promise is not of a task that this
                attempt scheduled.
            NotEncodable: An argument is a value that JSON cannot carry unchanged.
            TooLarge: The children and the value of the running task are too large for one record.
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
        """Raise InputError unless the function can be called with these arguments."""
        if (reason := self.why_not_callable(args, kwargs)) is not None:
            raise InputError(f"{self.name}{_signature(self.function)}: {reason}")

    def why_not_callable(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """Return why the function cannot be called with these arguments, or None if it can. Does not call it."""
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

        `app.start(actor.options(...))` accepts only `retry`, `retryable` and `context`.

        Args:
            eta: The earliest time at which the task runs. A datetime with a time zone, at most 10 years from now.
            delay: How long the task waits after it became ready, in seconds, as a timedelta, or as a text such as `5s`.
                At most 10 years.
            fallible: If true, a failure of the task does not break its process. Tasks that wait for its value get a
                `Failure` in its place. Children of the task are fallible only if they are scheduled so.
            retry: What `@app.actor(retry=...)` accepts: a `Backoff(...)`, None or False for no retries, or a strategy.
                A strategy needs a name (`app.strategy`), unless an actor or the application is registered with it.
                True, the default, changes nothing.
            retryable: Errors that are transient for this task, whatever the catalogues say. For example, a document
                that does not exist yet. At most 20 classes, full names of classes, or codes by number or name.
            context: A dict of JSON values that the retry strategy can read, at most 2,048 bytes.

        Returns:
            A copy of this actor. This actor itself does not change.

        Raises:
            InputError: An option has a value that is not allowed.

        Example:
            charge.options(delay="10m", fallible=True).schedule(order_id)
        """
        if eta is not None:
            shown, eta = given.shown(eta), _moment(eta)
            if eta is None:
                raise InputError(f"{self.name}.options(eta={shown}): must be a datetime with a time zone")
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
        retry_options = self.strategies.options_of(retry, f"{self.name}.options(...)")
        if error_names := names_of_errors(retryable, f"{self.name}.options(retryable="):
            retry_options = (retry_options or RetryOptions()).evolve(retryable=error_names)
        context_text = None if context is None else _context_text(context, self.name)
        return replace(self, _eta=eta, _delay=seconds, _fallible=fallible, _retry=retry_options, _context=context_text)

    def strategy_for(self, options: RetryOptions) -> RetryStrategy | None:
        """Return the strategy that decides about a task with these options, or None if a policy does.

        The task's own strategy comes first, then the actor's. If this application does not have the task's strategy,
        the actor's is used.
        """
        if options.strategy is not None:
            return self.strategies.find(options.strategy) or self.strategy
        return None if options.initial is not None else self.strategy

    @property
    def start_options(self) -> tuple[RetryOptions | None, str | None]:
        """The retry options and the context for a process that is started with this actor. Raises InputError if an
        option is set that only a scheduled task can have."""
        if self._eta is not None or self._delay is not None or self._fallible:
            raise InputError(
                f"app.start({self.name}.options(...)): a process starts at once, and is not fallible; only `retry` and "
                "`context` can be given at its start"
            )
        return self._retry, self._context


def _moment(value: Any) -> datetime | None:
    """Return a time as an exact datetime, or None if the value is not a time. A time zone may be code of the
    application, so only the UTC offset that it gives for this time is kept."""
    try:
        return datetime.fromisoformat(datetime.isoformat(value))
    except Exception:
        return None


def _is_near(eta: datetime) -> bool:
    try:
        return eta.astimezone(UTC) - datetime.now(UTC) <= timedelta(seconds=LONGEST)
    except OverflowError:
        return False  # its time zone moves the date out of the calendar, so MongoDB could not store it


@lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:
        return None  # some built-in functions, such as max, have none: a wrong call fails when the task runs


def check_function(name: str, function: Callable[..., Any]) -> None:
    """Raise InputError if a function cannot be an actor.

    A class, a method of an object, and a value that cannot be called are refused. So are coroutine functions and
    generators: their calls return something to await or to iterate over, so each of their tasks would end with an
    error.
    """
    if isinstance(function, type):
        raise InputError(f"actor {name} is a class, and its tasks would have objects as values: register a function")
    # The `schedule` of an actor is allowed, because that actor is the same in each worker.
    if isinstance(function, MethodType) and not isinstance(function.__self__, Actor):
        raise InputError(
            f"actor {name} is a method of an object, and each worker would have another object: register a function "
            "that makes what it needs, or gets it as arguments"
        )
    if not callable(function):
        raise InputError(f"actor {name} is {given.shown(function)}, which can't be called: register a function")
    # A call of an object that is not a function calls `__call__` of its class.
    candidates = [function, inspect.getattr_static(type(function), "__call__", None)]
    if any(map(inspect.iscoroutinefunction, candidates)):
        raise InputError(
            f"actor {name} is `async def`, and workers call plain functions: write `def {name}(...)`, which runs it by "
            "`asyncio.run(...)`; for many tasks at once there is `recovery worker --pool threads`"
        )
    if any(inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate) for candidate in candidates):
        raise InputError(
            f"actor {name} is a generator (it has a `yield`), and a task has one value: return a list, or schedule a "
            "task for each part"
        )


def call_of(name: str, number: int, one: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and named arguments of item `number` of `start_many`. Raises InputError."""
    if isinstance(one, list | tuple):
        return tuple(one), {}
    if isinstance(one, Mapping):
        return (), dict(one)
    raise InputError(
        f"arguments[{number}] of {name} is {given.shown(one)}: give a list or tuple of what it is called with, such as "
        "[10], or a dict of that by name"
    )


def encode_call(actor: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Encoded:
    """Return a call's arguments as the JSON text `[positional, named]`. Raises NotEncodable and TooLarge."""
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
    """Return the checked settings of an actor. Raises InputError for a name or a value that is not allowed."""
    if not (isinstance(name, str) and re.fullmatch(NAME, name)):
        requirement = "use letters, digits, '_', '.', '-', at most 100, first a letter or '_'"
        raise InputError(f"actor name {given.shown(name)}: {requirement}")
    name = given.exact(name)
    if is_reserved(name):
        raise InputError(
            f"actor name {name!r} is reserved, as are all names that begin with 'celery.' or 'recovery.'; take another"
        )
    result = ActorPreferences(id=name, **changes)
    check(result)
    return result
