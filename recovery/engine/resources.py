"""What every step works with: settings, the store, the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recovery.queue import Broker, Turns, signer
from recovery.retry import Catalogues, shipped
from recovery.settings import Settings
from recovery.store import Store

TURN_LIFETIME = 3.0
"""Seconds that a turn outlives whoever had it: what ends meanwhile waits to be overdue. A turn's step takes a tenth."""
UNKNOWN_VERSION = "unknown"
"""The version of an application where there is none: programs without actors, such as commands, run no tasks."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Settings and connections of one process. Made anew after a fork."""

    settings: Settings
    store: Store
    broker: Broker
    turns: Turns
    catalogues: Catalogues = field(default_factory=shipped, compare=False)
    """What errors mean: the application's, where there is one."""
    version: Callable[[], str] = field(default=lambda: UNKNOWN_VERSION, compare=False)
    """Returns the version of the application. A function, because the version may depend on actors that are registered
    after the first use of these resources."""

    compatible_with: frozenset[str] = field(default=frozenset(), compare=False)
    """The versions to which tasks may be pinned that the application runs as well."""

    @classmethod
    def connect(
        cls,
        settings: Settings,
        catalogues: Catalogues | None = None,
        version: Callable[[], str] | None = None,
        compatible_with: frozenset[str] = frozenset(),
    ) -> Resources:
        """Resources of these settings; connections are made at first use."""
        known = shipped() if catalogues is None else catalogues
        broker, turns = Broker(settings.broker_url, signer(settings)), Turns(settings.broker_url, TURN_LIFETIME)
        store = Store(settings, version=version or (lambda: None))
        return cls(settings, store, broker, turns, known, version or (lambda: UNKNOWN_VERSION), compatible_with)

    @property
    def recorded_version(self) -> str | None:
        """The version as records have it: absent if there is no application."""
        version = self.version()
        return None if version == UNKNOWN_VERSION else version

    def may_run(self, pinned_to: str) -> bool:
        """Whether the application's code runs a task that is pinned to this version."""
        return pinned_to in self.compatible_with or pinned_to == self.version()
