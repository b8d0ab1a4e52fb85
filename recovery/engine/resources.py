"""What every step works with: settings, the store, the broker."""

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
"""Seconds that a turn outlives whoever had it: what ends meanwhile waits to be overdue. A turn's step takes a tenth."""
UNKNOWN_VERSION = "unknown"
"""The version of an application where there is none: programs without actors, such as commands, run no tasks."""


class Queueing:
    """What is asked of Redis. Its modules are imported at the first use: a command that asks MongoDB alone does not
    wait for redis-py and Celery."""

    broker: Broker = part("queue.broker:Broker", lambda own: (own._settings.broker_url, own._signer))
    """The messages to actors."""
    turns: Turns = part("queue.coordination:Turns", lambda own: (own._settings.broker_url, TURN_LIFETIME))
    """Whose turn it is to apply what ends in a large process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def _signer(self) -> Signer:
        from recovery.queue.message import signer

        return signer(self._settings)


@dataclass(frozen=True, slots=True)
class Resources:
    """Settings and connections of one process. Made anew after a fork."""

    settings: Settings
    store: Store
    queueing: Queueing
    own_catalogues: Catalogues | None = field(default=None, compare=False)
    """What errors mean to the application; None if there is none."""
    version: Callable[[], str] = field(default=lambda: UNKNOWN_VERSION, compare=False)
    """Returns the version of the application. A function, because the version may depend on actors that are registered
    after the first use of these resources."""

    strategy_of: StrategyOf | None = field(default=None, compare=False)
    """Returns the retry strategy of a task, by its actor and by what the task says itself; None without an
    application."""
    compatible_with: frozenset[str] = field(default=frozenset(), compare=False)
    """The versions to which tasks may be pinned that the application runs as well."""

    @classmethod
    def connect(
        cls,
        settings: Settings,
        catalogues: Catalogues | None = None,
        version: Callable[[], str] | None = None,
        compatible_with: frozenset[str] = frozenset(),
        strategy_of: StrategyOf | None = None,
    ) -> Resources:
        """Resources of these settings; connections are made at first use."""
        store = Store(settings, version=version or (lambda: None))
        known_version = version or (lambda: UNKNOWN_VERSION)
        return cls(settings, store, Queueing(settings), catalogues, known_version, strategy_of, compatible_with)

    @property
    def catalogues(self) -> Catalogues:
        """What errors mean: to the application, or by the catalogues that are shipped."""
        from recovery.retry.catalogues import shipped

        return shipped() if self.own_catalogues is None else self.own_catalogues

    @property
    def recorded_version(self) -> str | None:
        """The version as records have it: absent if there is no application."""
        version = self.version()
        return None if version == UNKNOWN_VERSION else version

    def may_run(self, pinned_to: str) -> bool:
        """Whether the application's code runs a task that is pinned to this version."""
        return pinned_to in self.compatible_with or pinned_to == self.version()

    @property
    def broker(self) -> Broker:
        """The messages to actors."""
        return self.queueing.broker

    @property
    def turns(self) -> Turns:
        """Whose turn it is to apply what ends in a large process."""
        return self.queueing.turns
