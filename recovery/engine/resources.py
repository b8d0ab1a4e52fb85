"""What every step works with: settings, the store, the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from recovery.queue import Broker, signer
from recovery.retry import Catalogues, shipped
from recovery.settings import Settings
from recovery.store import Store


@dataclass(frozen=True, slots=True)
class Resources:
    """Settings and connections of one process. Made anew after a fork."""

    settings: Settings
    store: Store
    broker: Broker
    catalogues: Catalogues = field(default_factory=shipped, compare=False)
    """What errors mean: the application's, where there is one."""

    @classmethod
    def connect(cls, settings: Settings, catalogues: Catalogues | None = None) -> Resources:
        """Resources of these settings; connections are made at first use."""
        known = shipped() if catalogues is None else catalogues
        return cls(settings, Store(settings), Broker(settings.broker_url, signer(settings)), known)
