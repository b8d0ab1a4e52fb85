"""What every step works with: settings, the store, the broker."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.queue import Broker, signer
from recovery.settings import Settings
from recovery.store import Store


@dataclass(frozen=True, slots=True)
class Resources:
    """Settings and connections of one process. Made anew after a fork."""

    settings: Settings
    store: Store
    broker: Broker

    @classmethod
    def connect(cls, settings: Settings) -> Resources:
        """Resources of these settings; connections are made at first use."""
        return cls(settings, Store(settings), Broker(settings.broker_url, signer(settings)))
