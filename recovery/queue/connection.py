"""How we connect to Redis: our own clients, and Celery's of workers, beats and commands, all in the same way.

No connection waits for ever. A server that is gone without a word (its machine lost its power, a firewall drops what
we send) resets nothing: a read or a write would wait for as long as the kernel does, which is a quarter of an hour for
a write and without end for a read. So each has its time, and what is idle is asked for by the kernel, or by Celery's
transport, now and then.

With `rediss://` the server's certificate and name are verified before anything is said to it, the password least of
all. kombu by itself verifies nothing where the address has no options. Those of the address win: `ssl_ca_certs`,
`ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname`, and `ssl_cert_reqs`, whose `none` verifies nothing.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recovery.queue.packing import OnePiece

ANSWER_TIMEOUT = 3.0
"""Seconds. What we ask takes Redis milliseconds, and a server that is busy with another's long script is asked again;
workers wait for it in their event loops, one answer after the other."""

CHECK_EVERY = 2
"""Whole seconds. By this much may an answer to a worker's poll be late, which Redis gives within one; a look every so
often finds it. So a connection that died is closed within five seconds, and one for remote control within eight."""

ASK_AFTER = 5
"""Seconds that a connection of ours was idle after which it is asked whether it lives, before it carries anything."""

_KEEPALIVE = {
    # An idle connection is known to be dead after five seconds, and two more for each of three unanswered probes.
    socket.TCP_KEEPIDLE: 5,
    socket.TCP_KEEPINTVL: 2,
    socket.TCP_KEEPCNT: 3,
    # Milliseconds. What was written and not acknowledged for so long: the kernel by itself tries for 15 minutes.
    socket.TCP_USER_TIMEOUT: 10_000,
}

_SOCKETS = {
    "socket_timeout": ANSWER_TIMEOUT,
    "socket_connect_timeout": ANSWER_TIMEOUT,
    "socket_keepalive": True,
    "socket_keepalive_options": _KEEPALIVE,
}


def connect(url: str, within: float = ANSWER_TIMEOUT, **options: Any) -> Redis:
    """A client of our own, which connects when it is used. Raises ValueError for an address that can't be."""
    sockets = dict(_SOCKETS, socket_connect_timeout=within, command_packer=OnePiece(), health_check_interval=ASK_AFTER)
    sockets |= options
    # No retries: redis-py would send a command again whose reply was lost.
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0), **sockets | {"socket_timeout": within})


def celery_settings(url: str) -> dict[str, Any]:
    """The settings of a Celery application that has its broker at this address."""
    return {
        "broker_url": url,
        # Whole where the address has options of its own, kombu would leave these out; redis-py's default is the same.
        "broker_use_ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED} if url.startswith("rediss:") else False,
        "broker_transport_options": {**_SOCKETS, "health_check_interval": CHECK_EVERY},
    }
