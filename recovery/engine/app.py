"""`Recovery`: where actors and process types are registered, processes started and results asked for."""

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
"""What a process type may be told beside what an actor may."""


class Recovery:
    """An application: its actors, its process types, and the servers it runs on.

        app = Recovery()

        @app.actor()
        def double(number):
            return 2 * number

        @app.process()
        def twice(number):
            return double.schedule(double.schedule(number))

        app.result(app.start(twice, 10), timeout=30)  # 40

    Making one connects to nothing. `name` tells applications apart: workers of two do not start on one database, unless
    RECOVERY_SHARED_WITH allows it. By default it is the top-level package of the module that makes it. `version` tells
    the versions of its code apart (docs/upgrades.md); see the property for the default. It also runs the tasks that are
    pinned to the versions `compatible_with`: those of process types with `versions="same"`.

    `settings` default to those of the environment. `retry` is what holds where neither a process type nor an actor says
    something else: a `Backoff(...)`, None for no retry, or a strategy.
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
        """{pid: the connections of that process}."""
        self.actors: dict[str, Actor[..., Any]] = {}
        self.strategies = NamedStrategies()
        """Strategies that tasks may name, by `options(retry=...)`."""
        self.schedules: dict[str, Plan] = {}
        """{process type: when the code says that it is started}."""

    @cached_property
    def settings(self) -> Settings:
        return self._settings or current()

    @cached_property
    def version(self) -> str:
        """The version of this application's code: as given, else its distribution's, else a hash of its actors' names
        and parameters."""
        return default_version(self._made_by, self.actors) if self._version is None else self._version

    @cached_property
    def catalogues(self) -> Catalogues:
        """What errors mean: the shipped catalogues, those of installed distributions, and this application's own, by
        `classifies` and `catalogues.add`. Raises SettingsError for a distribution whose catalogue can't be used."""
        return in_use()

    @property
    def resources(self) -> Resources:
        """Connections of this process; a fork makes its own."""
        return self._connection()[0]

    @property
    def outbox(self) -> Outbox:
        """Who applies this process's finished decisions."""
        return self._connection()[1]

    @property
    def registrar(self) -> Registrar:
        """Who registers the processes that this one starts."""
        return self._connection()[2]

    def _connection(self) -> tuple[Resources, Outbox, Registrar]:
        pid = os.getpid()
        if (made := self._connected.get(pid)) is not None:
            return made
        resources = Resources.connect(
            self.settings,
            self.catalogues,
            partial(getattr, self, "version"),
            self.compatible_with,
            self._strategy_of_task,
        )
        # Threads that come here at the same time all take what the first one made.
        return self._connected.setdefault(pid, (resources, Outbox(resources), Registrar(resources)))

    @property
    def process_types(self) -> list[str]:
        """Names of the actors that a process can be started with."""
        return [name for name, actor in self.actors.items() if actor.process_type is not None]

    def actor(self, name: str | None = None, **settings: Any) -> Callable[[Callable[P, R]], Actor[P, R]]:
        """Register a function as an actor. `settings` are the fields of `ActorPreferences`; times are seconds, texts
        such as "10m", or timedeltas. `retry` may be a `Backoff(...)`, None for no retry, or a strategy.

        The name is by default the function's. It is stored with every task: keep it when the code moves.
        """
        name = naming.checked_name(name)

        def register(function: Callable[P, R]) -> Actor[P, R]:
            checked = actor_preferences(function, name, settings)
            strategy = self._strategy_of(settings, f"actor {checked.id}")
            return self._add(Actor(function, checked, strategy=strategy, strategies=self.strategies))

        return register

    def process(self, name: str | None = None, **settings: Any) -> Callable[[Callable[P, R]], Actor[P, R]]:
        """Register a function as a process type: an actor that a process can be started with.

        `settings` are the fields of `ActorPreferences` and of `ProcessTypePreferences`, as of `actor`. What is said of
        retry holds for all tasks of its processes, unless their actors say something else; a strategy for its own.
        With `versions="same"` they run only on workers of the version that started the process, or of a compatible one.
        `key` is a function of the arguments that says what of the type a process is for: with `markers` one that breaks
        keeps only those of the same key from being started. And what says when it is started by itself
        (docs/schedules.md): `schedule`, with `time_zone`, `overlap`, `catch_up`, `catch_up_limit`, `jitter`,
        `starts_at`, `ends_at`, `retry_across`, `retry_across_count` and `schedule_arguments`.
        """
        name, key = naming.checked_name(name), settings.pop("key", None)
        scheduled = {one: settings.pop(one) for one in SCHEDULE_SETTINGS if one in settings}
        of_type = {key: settings.pop(key) for key in setting_names(ProcessTypePreferences) if key in settings}
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
        """Say what a class of errors means: its code, whose range says whether waiting helps, and its reason, which
        says whether a task that is not idempotent may be tried again. Subclasses are the same, unless they say
        otherwise.

            @app.classifies(27001, "RESOURCE_BUSY")
            class LedgerClosed(Exception):
                "The ledger is being closed"

        Without a reason only what is idempotent is tried again. Raises InputError for a code in no range, or that
        another error has, and for a reason that there is not. Errors of others: `catalogues.add`.
        """

        def register(error: E) -> E:
            self.catalogues.add(of_class(error, code, reason, text))
            return error

        return register

    def strategy(self, name: str, strategy: RetryStrategy) -> RetryStrategy:
        """Give a retry strategy a name, by which tasks keep it (`actor.options(retry=strategy)`), and return it.

        One that an actor or the application is registered with has a name. Raises InputError as `NamedStrategies.add`.
        """
        return self.strategies.add(name, strategy)

    def _strategy_of(self, settings: Mapping[str, Any], of: str) -> RetryStrategy | None:
        """The strategy of an actor: its own, or the application's where it says nothing of retry."""
        return strategy_of(settings, of) if says_of_retry(settings) else self._strategy

    def _strategy_of_task(self, actor: str, options: RetryOptions) -> RetryStrategy | None:
        return self.actors[actor].strategy_for(options) if actor in self.actors else None

    def _add(self, actor: Actor[P, R]) -> Actor[P, R]:
        check_function(actor.name, actor.function)
        if actor.name in self.actors:
            other = self.actors[actor.name].function
            raise InputError(
                f"two actors are named {actor.name!r}: {naming.place_of(other)} and "
                f"{naming.place_of(actor.function)}; give one of them another name with @app.actor('name')"
            )
        if actor.strategy is not None:
            is_everyones = actor.strategy is self._strategy
            self.strategies.add_own("application" if is_everyones else f"actor.{actor.name}", actor.strategy)
        self.actors[actor.name] = actor
        self.__dict__.pop("version", None)  # of the actors before
        return actor

    def find_actor(self, name: str) -> Actor[..., Any]:
        """The actor of this name. Raises UnknownActor."""
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
        """Start a process; its id. Once this returns, the process ends, whatever fails.

        By its `labels` it is searched, as `label.customer:acme`: up to 20 texts by name.

        With a `custom_id` that a process of this type has already, unless that one was aborted, `if_exists` says what
        is done (`start.admission.IfExists`). By default that one's id is returned, and nothing is started: so a
        start whose answer was lost can be repeated. It must have been started with the same arguments, each by its
        place or its name as now, unless they may be `any_arguments`.
        Raises UnknownProcessType, NotEncodable, TooLarge, CustomIdTaken; and StartRefused, where a marker or an
        operator says that none is to be started now.
        """
        actor = self._process_type(process)
        custom_id = given.text(custom_id, "custom_id") if custom_id is not None else None
        policy = admission.checked(if_exists, custom_id)
        labelled = encode_labels(labels) if labels is not None else ()
        text, key = encode_start(actor, args, kwargs)
        starts = self._starts(actor, any_arguments=any_arguments, if_exists=policy)
        options = _start_options(process)
        wanted = starts.process(text, version=self.version, custom_id=custom_id, key=key, labels=labelled, **options)
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
        """Start a process for each of these: a list or tuple of what it is called with, or a dict of that by name. A
        thousand cost MongoDB as much as some dozens by `start`.

        What became of each, in their order: its `id`; whether it `was_there`, by its custom id; or the `error` for
        which it was not started (CustomIdTaken, StartRefused). `ordered`: none is started behind one that could not be.

        Raises as `start`, before any is started, for what can't be an argument or a custom id; and ServerUnavailable
        where MongoDB did not confirm all.
        """
        actor = self._process_type(process)
        calls = [call_of(actor.name, number, one) for number, one in enumerate(arguments)]
        keys: list[str | None] = [None] * len(calls)
        if custom_ids is not None:
            keys = [given.text(one, f"custom_ids[{number}]") for number, one in enumerate(custom_ids)]
            if len(keys) != len(calls):
                raise InputError(f"{len(keys):,} custom_ids for {len(calls):,} processes: give one for each")
        labelled = encode_labels(labels) if labels is not None else ()
        encoded = [encode_start(actor, *call) for call in calls]
        starts, options = self._starts(actor, any_arguments=any_arguments), _start_options(process)
        wanted = [
            starts.process(text, version=self.version, custom_id=custom_id, key=key, labels=labelled, **options)
            for (text, key), custom_id in zip(encoded, keys, strict=True)
        ]
        return starts.start_many(wanted, ordered=ordered is True)

    def _starts(self, actor: Actor[..., Any], *, any_arguments: bool, if_exists: IfExists = IfExists.RETURN) -> Starts:
        assert actor.process_type is not None, "it is the actor of a process type"
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

    def _met(self, there: Process, if_exists: IfExists) -> None:
        """Do what is to be done about the process that has the custom id."""
        if if_exists is IfExists.ERROR:
            raise admission.already_taken(there)
        if if_exists is IfExists.RESTART and there.state is ProcessState.BROKEN:
            with admission.by_operator(there, if_exists):
                reason = f"a start with its custom id {there.custom_id} said if_exists={if_exists}"
                restart_if_broken(self.resources, there.id, reason)

    def result(self, process_id: str, timeout: float | str | timedelta | None = None) -> Any:
        """The value of a process, waiting for its end up to a `timeout` (None: for ever), in seconds or as `5s`.

        Raises ProcessNotFound, ProcessBroken, and ResultTimeout, after which it may be asked again; and InputError if
        a running actor would wait, which holds a slot: it may only ask, with timeout=0.
        """
        return await_result(self.resources, process_id, timeout)

    def restart(self, process_id: str, task: str | None = None, *, reason: str = "") -> int:
        """Queue the failed tasks of a broken process again, or one of them; how many. What was finished stays so.
        `reason` is kept in the audit log.

        The process runs on once none of its tasks is failed any more. Raises ProcessNotFound, and InputError where
        nothing can be restarted.
        """
        return restart_process(self.resources, process_id, task, reason).tasks

    def abort(self, process_id: str, reason: str) -> None:
        """End a process that runs or is broken, at once and for good; `reason` is shown with it.

        Attempts that run lose their claim. Raises ProcessNotFound, and InputError for one that has finished.
        """
        abort_process(self.resources, process_id, reason)


def _start_options(process: Actor[..., Any] | str) -> dict[str, Any]:
    """What a process is to be started with by `with_options`."""
    retry, context = process.start_options if isinstance(process, Actor) else (None, None)
    return {"retry": retry, "context": context}
