"""Our clients of Redis, one of a kind for each address and process: a connection is not to be carried over a fork."""

from __future__ import annotations

import os
from functools import lru_cache

from redis import Redis

from recovery import certificates
from recovery.addresses import public, told
from recovery.errors import SettingsError
from recovery.queue.connection import ANSWER_TIMEOUT, connect


class Addressed:
    """What stands at one Redis address."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())


@lru_cache(maxsize=8)
def client(url: str, _pid: int, within: float = ANSWER_TIMEOUT, bounded: bool = False) -> Redis:
    """The client of this process, `_pid`. `bounded`: it reads nothing that is larger than a message may be."""
    if (tls := certificates.of_redis(url)) is not None:
        tls.check()
    options = {}
    if bounded:
        from recovery.queue.bounded import BoundedParser  # with what messages are, which most clients never read

        options["parser_class"] = BoundedParser
    try:
        return connect(url, within, **options)
    except (ValueError, OSError) as error:
        raise SettingsError(f"RECOVERY_BROKER_URL={public(url)}: {told(error, url)}") from None
