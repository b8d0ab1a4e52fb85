"""The settings and connections that every step uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.lazy_imports import part
from recovery.settings import Settings
from recovery.store import Store

if TYPE_CHECKING:
    from recovery.queue import Broker, Signer, Turns
    from recovery.records import RetryOptions
    from recovery.retry import Catalogues, RetryStrategy

    StrategyOf = Callable[[str, RetryOptions], RetryStrategy | None]

TURN_LIFETIME = 3.0
"""Seconds that a turn lasts after its holder has died. Tasks that end meanwhile are applied once they are overdue. One
step of a turn takes a tenth of this time."""
UNKNOWN_VERSION = "unknown"
"""The version if there is no application. Programs without actors, such as commands, run no tasks."""


class Queueing:
    """The connections to Redis. Their modules are imported at first use, so that a command that asks MongoDB alone does
    not load redis-py and Celery."""

    broker: Broker = part("queue.broker:Broker", lambda own: (own._settings.broker_url, own._signer))
    """The queues with the messages to actors."""
    turns: Turns = part("queue.coordination:Turns", lambda own: (own._settings.broker_url, TURN_LIFETIME))
    """The turns to apply the finished tasks of large processes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def _signer(self) -> Signer:
        from recovery.queue.message import signer

        return signer(self._settings)


@dataclass(frozen=True, slots=True)
class Resources:
    """The settings and connections of one operating-system process. A forked process makes its own."""

    settings: Settings
    store: Store
    queueing: Queueing
    own_catalogues: Catalogues | None = field(default=None, compare=False)
    """The catalogues of the application, which say what errors mean. None if there is no application."""
    version: Callable[[], str] = field(default=lambda: UNKNOWN_VERSION, compare=False)
    """Returns the version of the application. A function, because the version may depend on actors that are registered
    after the first use of these resources."""

    strategy_of: StrategyOf | None = field(default=None, compare=False)
    """Returns the retry strategy of a task for its actor's name and its own retry options. None if there is no
    application."""
    compatible_with: frozenset[str] = field(default=frozenset(), compare=False)
    """Other versions whose pinned tasks the application may run."""

    @classmethod
    def connect(
        cls,
        settings: Settings,
        catalogues: Catalogues | None = None,
        version: Callable[[], str] | None = None,
        compatible_with: frozenset[str] = frozenset(),
        strategy_of: StrategyOf | None = None,
    ) -> Resources:
        """Return resources with these settings. Connections are made at first use."""
        store = Store(settings, version=version or (lambda: None))
        known_version = version or (lambda: UNKNOWN_VERSION)
        return cls(settings, store, Queueing(settings), catalogues, known_version, strategy_of, compatible_with)

    @property
    def catalogues(self) -> Catalogues:
        """The catalogues that say what errors mean: the application's, or else the shipped ones."""
        from recovery.retry.catalogues import shipped

        return shipped() if self.own_catalogues is None else self.own_catalogues

    @property
    def recorded_version(self) -> str | None:
        """The version that records store. None if there is no application."""
        version = self.version()
        return None if version == UNKNOWN_VERSION else version

    def may_run(self, pinned_to: str) -> bool:
        """Return whether the application's code may run a task that is pinned to this version."""
        return pinned_to in self.compatible_with or pinned_to == self.version()

    @property
    def broker(self) -> Broker:
        """The queues with the messages to actors."""
        return self.queueing.broker

    @property
    def turns(self) -> Turns:
        """The turns to apply the finished tasks of large processes."""
        return self.queueing.turns
