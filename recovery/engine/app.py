"""The public class `Recovery`: it registers actors and process types, starts processes and returns their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, ParamSpec, TypeVar

from recovery.engine import lookup as naming
from recovery.engine.actors.actor import Actor, call_of, check_function
from recovery.engine.actors.declared import (
    actor_preferences,
    as_settings,
    says_of_retry,
    strategy_of,
    type_preferences,
)
from recovery.engine.actors.strategies import NamedStrategies
from recovery.engine.application import (
    checked_name,
    checked_version,
    checked_versions,
    default_version,
    module_of_maker,
    name_of_package,
)
from recovery.engine.apply.outbox import Outbox
from recovery.engine.end.results import await_result
from recovery.engine.operators.abort import abort_process, abort_replaced
from recovery.engine.operators.restart import restart_if_broken, restart_process
from recovery.engine.operators.schedules import SCHEDULE_SETTINGS, arguments_of, declared_plan
from recovery.engine.resources import Resources
from recovery.engine.start import admission
from recovery.engine.start.admission import IfExists
from recovery.engine.start.keys import check_key_function, encode_start
from recovery.engine.start.registration import Registrar
from recovery.engine.start.start import Started, Starts
from recovery.errors import (
    InputError,
    UnknownActor,
    UnknownProcessType,
)
from recovery.records import Process, ProcessState, ProcessTypePreferences, RetryOptions, given
from recovery.records.preferences import setting_names
from recovery.records.schedule import Plan
from recovery.records.search_names import encode_labels
from recovery.retry import Backoff, Catalogues, ErrorCode, Reason, RetryStrategy, in_use, of_class
from recovery.retry.reasons import UNKNOWN
from recovery.settings import Settings, current

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=type[BaseException])

OF_PROCESS_TYPES = (*setting_names(ProcessTypePreferences), "key", *SCHEDULE_SETTINGS)
"""Names of the settings that a process type accepts in addition to those of an actor."""


class Recovery:
    """An application: its actors and process types, and the servers that it uses.

    Creating a `Recovery` object connects to no server. Connections are made at first use.

    Args:
        settings: Addresses and limits, from `recovery.settings.load(...)`. The default is the settings of the
            environment.
        name: Name of the application. Workers of two applications do not start on the same database unless
            RECOVERY_SHARED_WITH allows it. The default is the top-level package of the module that creates the object.
        version: Version of the application's code (docs/upgrades.md). The property `version` describes the default.
        compatible_with: Other versions whose pinned tasks this code may run too. Tasks are pinned if their process type
            has `versions="same"`.
        retry: Retry policy of tasks whose actor and process type set none: a `Backoff(...)`, a retry strategy, True for
            the default policy, or None or False for no retries.

    Raises:
        InputError: An argument has the wrong type, or a value that is not allowed.

    Example:
        app = Recovery()

        @app.actor()
        def double(number):
            return 2 * number

        @app.process()
        def twice(number):
            return double.schedule(double.schedule(number))

        app.result(app.start(twice, 10), timeout=30)  # 40, if a worker runs
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        name: str | None = None,
        version: str | None = None,
        compatible_with: Iterable[str] = (),
        retry: Backoff | RetryStrategy | bool | None = True,
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise InputError(f"Recovery({given.shown(settings)}): give it `recovery.settings.load(...)`, or nothing")
        self._made_by = module_of_maker(self)
        self.name = name_of_package(self._made_by) if name is None else checked_name(name)
        self._version = None if version is None else checked_version(version)
        self.compatible_with = checked_versions(compatible_with)
        as_settings(ProcessTypePreferences, {"retry": retry}, "Recovery")
        self._strategy = strategy_of({"retry": retry}, "Recovery")
        self._retry = retry
        self._settings = settings
        self._connected: dict[int, tuple[Resources, Outbox, Registrar]] = {}
        """{pid: the connections of that operating-system process}."""
        self.actors: dict[str, Actor[..., Any]] = {}
        """{name: actor}."""
        self.strategies = NamedStrategies()
        """Strategies that a task can name with `options(retry=...)`."""
        self.schedules: dict[str, Plan] = {}
        """{process type: the schedule that the code declares}."""

    @cached_property
    def settings(self) -> Settings:
        """The settings that the constructor got, or else those of the environment."""
        return self._settings or current()

    @cached_property
    def version(self) -> str:
        """The version of this application's code.

        It is the version that the constructor got. Otherwise it is the version of the installed distribution that
        contains the application's package. If no distribution does, it is a hash of the names and parameters of all
        actors.
        """
        return default_version(self._made_by, self.actors) if self._version is None else self._version

    @cached_property
    def catalogues(self) -> Catalogues:
        """The catalogues that say what errors mean.

        They are the shipped catalogues, those of installed distributions, and the entries that this application adds
        with `classifies` and `catalogues.add`.

        Raises:
            SettingsError: The catalogue of an installed distribution cannot be used.
        """
        return in_use()

    @property
    def resources(self) -> Resources:
        """The connections of this operating-system process. A forked process makes its own."""
        return self._connection()[0]

    @property
    def outbox(self) -> Outbox:
        """The component that applies the decisions that this operating-system process finished."""
        return self._connection()[1]

    @property
    def registrar(self) -> Registrar:
        """The component that registers the processes that this operating-system process started."""
        return self._connection()[2]

    def _connection(self) -> tuple[Resources, Outbox, Registrar]:
        pid = os.getpid()
        if (connection := self._connected.get(pid)) is not None:
            return connection
        resources = Resources.connect(
            self.settings,
            self.catalogues,
            partial(getattr, self, "version"),
            self.compatible_with,
            self._strategy_of_task,
        )
        # Threads that connect at the same time all get the connections of the first thread.
        return self._connected.setdefault(pid, (resources, Outbox(resources), Registrar(resources)))

    @property
    def process_types(self) -> list[str]:
        """Names of the actors that a process can be started with."""
        return [name for name, actor in self.actors.items() if actor.process_type is not None]

    def actor(self, name: str | None = None, **settings: Any) -> Callable[[Callable[P, R]], Actor[P, R]]:
        """Return a decorator that registers a function as an actor.

        The name is also the name of the actor's queue, and it is stored with every task. Keep the name when the code
        moves.

        Args:
            name: Name of the actor. The default is the function's name.
            **settings: Fields of `ActorPreferences` (docs/actors.md), such as `worker_timeout`. Durations are seconds,
                texts such as "10m", or timedeltas. `retry` is a `Backoff(...)`, a retry strategy, True for the default
                policy, or None or False for no retries.

        Raises:
            InputError: The name is taken or not allowed, a setting is unknown or has a wrong value, or the function
                cannot be an actor, for example because it is `async def`. Most of these errors are raised by the
                decorator.

        Example:
            @app.actor(worker_timeout="5m")
            def render(page):
                return page.upper()
        """
        name = naming.checked_name(name)

        def register(function: Callable[P, R]) -> Actor[P, R]:
            checked = actor_preferences(function, name, settings)
            strategy = self._strategy_of(settings, f"actor {checked.id}")
            return self._add(Actor(function, checked, strategy=strategy, strategies=self.strategies))

        return register

    def process(self, name: str | None = None, **settings: Any) -> Callable[[Callable[P, R]], Actor[P, R]]:
        """Return a decorator that registers a function as a process type.

        A process type is an actor that a process can be started with. Its function runs as the first task of the
        process.

        A retry policy that a process type sets holds for all tasks of its processes, unless the actor of the task sets
        its own. A retry strategy holds only for the process type's own function.

        Args:
            name: Name of the process type and of its actor. The default is the function's name.
            **settings: Fields of `ActorPreferences` and `ProcessTypePreferences` (docs/actors.md), given as in `actor`.
                With `versions="same"` only workers with the version that started the process, or with a compatible
                version, run its tasks. `key` is a function of the process's arguments. It returns what the process is
                for, such as a customer. With `markers`, a process that breaks then blocks further starts with the same
                key only. These settings start processes by a timetable (docs/schedules.md): `schedule`, `time_zone`,
                `overlap`, `catch_up`, `catch_up_limit`, `jitter`, `starts_at`, `ends_at`, `retry_across`,
                `retry_across_count` and `schedule_arguments`. A type with a `schedule` has `markers` on by default,
                unless `on_failure` is given.

        Raises:
            InputError: As in `actor`; or the key function or the schedule cannot be used.

        Example:
            @app.process(process_timeout="1h")
            def book(pages):
                return [render.schedule(page) for page in pages]
        """
        name, key = naming.checked_name(name), settings.pop("key", None)
        scheduled = {field: settings.pop(field) for field in SCHEDULE_SETTINGS if field in settings}
        of_type = {field: settings.pop(field) for field in setting_names(ProcessTypePreferences) if field in settings}
        if scheduled.get("schedule") is not None and "on_failure" not in of_type:
            of_type.setdefault("markers", True)
        if self._strategy is None and self._retry is not True and not says_of_retry(of_type):
            of_type["retry"] = self._retry
        if of_type.get("idle_timeout") is None:
            of_type["idle_timeout"] = self.settings.idle_timeout

        def register(function: Callable[P, R]) -> Actor[P, R]:
            checked = actor_preferences(function, name, settings, OF_PROCESS_TYPES)
            process_type = type_preferences(checked.id, of_type)
            strategy = self._strategy_of(of_type, f"process type {checked.id}")
            key_function = check_key_function(checked.id, key)
            actor = Actor(function, checked, process_type, strategy, key_function, self.strategies)
            plan = declared_plan(checked.id, scheduled)
            if plan is not None:
                actor.check_call(*arguments_of(plan))
            self._add(actor)
            if plan is not None:
                self.schedules[actor.name] = plan
            return actor

        return register

    def classifies(
        self, code: int | ErrorCode, reason: str | Reason = UNKNOWN, text: str | None = None
    ) -> Callable[[E], E]:
        """Return a decorator that says what a class of errors means for retries.

        The code's range says whether a retry can help. The reason says whether a task that is not idempotent may be
        retried. Subclasses have the same meaning unless they are registered themselves. For classes of other packages,
        use `catalogues.add`.

        Args:
            code: The code of the error, or its number.
            reason: The reason, or its name. With the default, only idempotent tasks are retried.
            text: A short description of the error. The default is the first line of the class's docstring.

        Raises:
            InputError: The code is in no range or belongs to another error, or no reason has this name.

        Example:
            @app.classifies(27001, "RESOURCE_BUSY")
            class LedgerClosed(Exception):
                "The ledger is being closed"
        """

        def register(error: E) -> E:
            self.catalogues.add(of_class(error, code, reason, text))
            return error

        return register

    def strategy(self, name: str, strategy: RetryStrategy) -> RetryStrategy:
        """Give a retry strategy a name, and return the strategy.

        A task's record stores its strategy by name, so `actor.options(retry=strategy)` needs one. A strategy that an
        actor or the application is registered with has a name already.

        Args:
            name: Name of the strategy: letters, digits, `_`, `.` and `-`, at most 100.
            strategy: The strategy. Register it in a module that workers import too.

        Raises:
            InputError: The name is not allowed or belongs to another strategy, or `strategy` is not a retry strategy.
        """
        return self.strategies.add(name, strategy)

    def _strategy_of(self, settings: Mapping[str, Any], owner: str) -> RetryStrategy | None:
        """Return the strategy of an actor: its own, or the application's if the actor sets nothing about retries."""
        return strategy_of(settings, owner) if says_of_retry(settings) else self._strategy

    def _strategy_of_task(self, actor: str, options: RetryOptions) -> RetryStrategy | None:
        return self.actors[actor].strategy_for(options) if actor in self.actors else None

    def _add(self, actor: Actor[P, R]) -> Actor[P, R]:
        check_function(actor.name, actor.function)
        if actor.name in self.actors:
            other_function = self.actors[actor.name].function
            raise InputError(
                f"two actors are named {actor.name!r}: {naming.place_of(other_function)} and "
                f"{naming.place_of(actor.function)}; give one of them another name with @app.actor('name')"
            )
        if actor.strategy is not None:
            is_applications = actor.strategy is self._strategy
            self.strategies.add_own("application" if is_applications else f"actor.{actor.name}", actor.strategy)
        self.actors[actor.name] = actor
        self.__dict__.pop("version", None)  # it may be a hash of the actors registered so far
        return actor

    def find_actor(self, name: str) -> Actor[..., Any]:
        """Return the actor with this name. Raises UnknownActor."""
        name = given.text(name, "name")
        if name not in self.actors:
            raise UnknownActor(f"no actor is named {name!r}; {naming.near(name, self.actors)}")
        return self.actors[name]

    def start(
        self,
        process: Actor[..., Any] | str,
        /,
        *args: Any,
        custom_id: str | None = None,
        any_arguments: bool = False,
        if_exists: Literal["return", "error", "restart", "new_after_end"] = "return",
        labels: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start a process, and return its id.

        Once this method returns, the process is saved and will end, whatever fails afterwards.

        A start with a `custom_id` can be repeated safely, for example if its answer was lost. If a process of this type
        already has the custom id, `if_exists` says what to do. An aborted process does not count.

        Args:
            process: The process type: the registered function, the same with `options(...)`, or its name.
            *args: Positional arguments of the function, as JSON values.
            custom_id: An id that you choose. Only one process of a type has it at a time.
            any_arguments: If a process already has the custom id, accept it although it was started with other
                arguments. Positional and named arguments count as different.
            if_exists: `"return"` returns the id of the existing process. `"error"` raises CustomIdTaken. `"restart"`
                restarts the failed tasks of the existing process if it is broken, and returns its id. `"new_after_end"`
                starts a new process if the existing one has finished or is broken; otherwise it returns the existing
                id.
            labels: Up to 20 texts by name. Searches find the process by them, for example with `label.customer:acme`.
            **kwargs: Named arguments of the function, as JSON values.

        Returns:
            The id of the process: 32 hexadecimal digits.

        Raises:
            UnknownProcessType: The application has no process type with this name.
            NotEncodable: An argument is a value that JSON cannot carry unchanged.
            TooLarge: The arguments are too large for one record.
            CustomIdTaken: A process has the custom id, and was started with other arguments or `if_exists` is
                `"error"`.
            StartRefused: A marker blocks starts of this type and key, or an operator disabled the type.
            ServerUnavailable: MongoDB did not confirm the start. The process may have been started. Repeat the start
                with the same custom id.
            StoreDenied: The existing process is broken, and the user of MongoDB may not change it as `if_exists` says.
            InputError: The function cannot be called with these arguments, or another argument has a wrong value.

        Example:
            process_id = app.start(book, ["page 1", "page 2"], custom_id="book-42", labels={"customer": "acme"})
        """
        actor = self._process_type(process)
        custom_id = given.text(custom_id, "custom_id") if custom_id is not None else None
        policy = admission.checked(if_exists, custom_id)
        encoded_labels = encode_labels(labels) if labels is not None else ()
        text, key = encode_start(actor, args, kwargs)
        starts = self._starts(actor, any_arguments=any_arguments, if_exists=policy)
        options = _start_options(process)
        wanted = starts.process(
            text, version=self.version, custom_id=custom_id, key=key, labels=encoded_labels, **options
        )
        return starts.start(wanted).id

    def start_many(
        self,
        process: Actor[..., Any] | str,
        /,
        arguments: Iterable[Sequence[Any] | Mapping[str, Any]],
        *,
        custom_ids: Iterable[str] | None = None,
        any_arguments: bool = False,
        labels: Mapping[str, str] | None = None,
        ordered: bool = False,
    ) -> list[Started]:
        """Start many processes of one type, with far fewer requests than one `start` for each.

        Args:
            process: The process type, as in `start`.
            arguments: One item for each process: a list or tuple of positional arguments, or a dict of named arguments.
            custom_ids: One custom id for each process, in the same order.
            any_arguments: As in `start`.
            labels: Labels that all of these processes get, as in `start`.
            ordered: Whether to stop at the first process that cannot be started. The following ones are then not
                started.

        Returns:
            One `Started` for each item, in the same order. `id` is the id of the process. `was_there` is true if a
            process already had the custom id. `error` says why the process was not started; it is None otherwise.

        Raises:
            InputError: An item, custom id or label has a wrong value. Nothing was started. NotEncodable, TooLarge and
                UnknownProcessType are such errors, as in `start`.
            ServerUnavailable: MongoDB did not confirm all starts. Some of the processes may have been started.

        Example:
            for started in app.start_many(book, [[["page 1"]], {"pages": ["page 2"]}]):
                print(started.id, started.error)
        """
        actor = self._process_type(process)
        calls = [call_of(actor.name, number, item) for number, item in enumerate(arguments)]
        ids: list[str | None] = [None] * len(calls)
        if custom_ids is not None:
            ids = [given.text(custom_id, f"custom_ids[{number}]") for number, custom_id in enumerate(custom_ids)]
            if len(ids) != len(calls):
                raise InputError(f"{len(ids):,} custom_ids for {len(calls):,} processes: give one for each")
        encoded_labels = encode_labels(labels) if labels is not None else ()
        encoded = [encode_start(actor, *call) for call in calls]
        starts, options = self._starts(actor, any_arguments=any_arguments), _start_options(process)
        wanted = [
            starts.process(text, version=self.version, custom_id=custom_id, key=key, labels=encoded_labels, **options)
            for (text, key), custom_id in zip(encoded, ids, strict=True)
        ]
        return starts.start_many(wanted, ordered=ordered is True)

    def _starts(self, actor: Actor[..., Any], *, any_arguments: bool, if_exists: IfExists = IfExists.RETURN) -> Starts:
        assert actor.process_type is not None, "the actor is a process type"
        return Starts(
            self.resources,
            self.resources.store.preferences.process_type(actor.process_type),
            self.registrar.add,
            any_arguments=any_arguments is True,
            if_exists=if_exists,
            abort_replaced=abort_replaced,
            met=partial(self._met, if_exists=if_exists),
        )

    def _process_type(self, process: Actor[..., Any] | str) -> Actor[..., Any]:
        name = process.name if isinstance(process, Actor) else given.text(process, "process")
        actor = self.actors.get(name)
        if actor is not None and actor.process_type is None:
            raise UnknownProcessType(
                f"{name!r} is an actor, and no process type: register it by @app.process() instead of @app.actor(), or "
                "start a process that schedules it"
            )
        if actor is None or actor.process_type is None:
            raise UnknownProcessType(f"no process type is named {name!r}; {naming.near(name, self.process_types)}")
        return actor

    def _met(self, existing: Process, if_exists: IfExists) -> None:
        """Treat the process that already has the custom id as `if_exists` says."""
        if if_exists is IfExists.ERROR:
            raise admission.already_taken(existing)
        if if_exists is IfExists.RESTART and existing.state is ProcessState.BROKEN:
            with admission.by_operator(existing, if_exists):
                reason = f"a start with its custom id {existing.custom_id} said if_exists={if_exists}"
                restart_if_broken(self.resources, existing.id, reason)

    def result(self, process_id: str, timeout: float | str | timedelta | None = None) -> Any:
        """Wait until a process ends, and return its value.

        Args:
            process_id: The id of the process, from `start`.
            timeout: How long to wait at most, in seconds, as a timedelta, or as a text such as `5s`. None waits without
                a limit, 0 does not wait.

        Returns:
            The value that the process's function returned, with the values of tasks in place of their promises.

        Raises:
            ProcessNotFound: No process has this id.
            ProcessBroken: The process is broken or was aborted.
            ResultTimeout: The process did not end in time. It goes on; call `result` again.
            InputError: A running actor would wait. It would hold a slot that the process may need. It may only ask,
                with `timeout=0`.
        """
        return await_result(self.resources, process_id, timeout)

    def restart(self, process_id: str, task: str | None = None, *, reason: str = "") -> int:
        """Restart the failed tasks of a broken process, and return how many were restarted.

        Finished tasks keep their results. The process runs again as soon as none of its tasks is failed. If the process
        broke as a whole, no task is restarted: the process runs again, and the method returns 0.

        Args:
            process_id: The id of the process.
            task: The id of one task within the process. The default is all failed tasks.
            reason: Why the tasks are restarted. It is kept in the audit log.

        Raises:
            ProcessNotFound: No process has this id.
            InputError: The process is not broken, or the task has not failed.
        """
        return restart_process(self.resources, process_id, task, reason).tasks

    def abort(self, process_id: str, reason: str) -> None:
        """End a running or broken process at once and for good.

        Running attempts lose their claims, and their results are discarded. An aborted process has no result.

        Args:
            process_id: The id of the process.
            reason: Why the process is aborted. It is shown with the process, and must not be empty.

        Raises:
            ProcessNotFound: No process has this id.
            InputError: The process has finished, or the reason is empty.
        """
        abort_process(self.resources, process_id, reason)


def _start_options(process: Actor[..., Any] | str) -> dict[str, Any]:
    """Return the options that `Actor.options` set, as fields of the Process record that is to be started."""
    retry, context = process.start_options if isinstance(process, Actor) else (None, None)
    return {"retry": retry, "context": context}
