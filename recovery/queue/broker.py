"""Push messages to Redis and read its queues. Redis holds only hints: to lose them costs time, never work.

A push that fails, or whose reply is lost, is retried once over another connection, because an idle connection may have
died unnoticed. A message that is pushed twice is harmless: the first claim makes the second message stale. If the retry
fails too, Redis is away. The decision is then queued in MongoDB with a deadline, and its missing message is found as
MESSAGE_LOST.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from recovery import certificates, handshake
from recovery.addresses import public, told
from recovery.errors import CertificateRefused, ServerRefused, ServerUnavailable, ServerUnfit
from recovery.log_lines import Seldom
from recovery.queue.message import UNSIGNED, MessageId, Signer, encode, id_of
from recovery.queue.redis_condition import RedisCondition, ask_condition, introduce
from recovery.queue.redis_connection import client, translated
from recovery.queue.untrusted import ASIDE
from recovery.records.ids import is_actor_name
from recovery.retry.in_place import by_driver, call
from recovery.retry.own_work import PUSH
from recovery.retry.reasons import Reason
from recovery.retry.strategies import Request, Stop
from recovery.store import Queued

log = logging.getLogger(__name__)

SCANNED_KEYS = 100_000
"""Maximum number of keys in a Redis database that `set_aside` scans, which takes about 0.1 s."""
AWAY_FOR = 10.0
"""Seconds after a push failed twice during which a failing push is not retried."""
NOT_PUSHED = "could not push %d messages (%s): they stay queued in MongoDB and are requeued after their message timeout"
SENT_AGAIN = "Redis takes messages again, after %.0f s"
"""The first and the last log line of an outage."""
NUDGED = "recovery.nudge.sent"
"""Key of a list with one entry, which each nudge of a beat overwrites. Redis reports how long ago that was."""
DEFAULT_HOST, DEFAULT_PORT = "localhost", 6379
"""Redis's default address, the same as in redis-py."""
_MODES = {
    "cluster": "runs in cluster mode, in which a client cannot wait for messages of several queues at once. Give the "
    "address of a single server (cluster-enabled no)",
    "sentinel": "is a Sentinel, which keeps no messages. Give the address of the primary that it watches",
}
"""Server modes that we can't use, each with the reason and the remedy."""
_REFUSALS = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
"""Prefixes of error replies that do not go away by waiting."""


@translated
class Broker:
    """The queues at one Redis address.

    A broker must not be used after a fork. Each process makes its own when it needs it.
    """

    def __init__(self, url: str, signer: Signer = UNSIGNED) -> None:
        self._url, self._signer = url, signer
        self._limited_log = Seldom(log)
        self._failed_at = -math.inf
        self._away_since: float | None = None
        """When the current outage began, by the monotonic clock: the first push that failed since one succeeded."""

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())

    def push(self, queued: Sequence[Queued]) -> int:
        """Push one message per decision, in one round trip.

        A decision whose actor name is not valid is skipped: the record is damaged, and the name may be the key of
        another program's list. The decision is found by its deadline.

        Returns:
            How many messages were pushed: all valid ones, or 0 if Redis is away.
        """
        if refused := sum(not is_actor_name(decision.actor) for decision in queued):
            self._limited_log.warning(
                "%d messages not pushed: no actor can have the name that their tasks are for", refused
            )
            queued = [decision for decision in queued if is_actor_name(decision.actor)]
            if not queued:
                return 0
        to_back: dict[str, list[str]] = defaultdict(list)
        to_front: dict[str, list[str]] = defaultdict(list)
        for decision in queued:
            (to_front if decision.first else to_back)[decision.actor].append(encode(decision, self._signer))

        def send() -> None:
            with self._redis.pipeline(transaction=False) as pipeline:
                for queue, texts in to_back.items():
                    pipeline.lpush(queue, *texts)
                for queue, texts in to_front.items():  # consumers take from this end
                    pipeline.rpush(queue, *reversed(texts))
                pipeline.execute()

        try:
            self._sent(send)
        except RedisError as error:
            self._push_failed(len(queued), error)
            return 0
        if self._away_since is not None:
            log.warning(SENT_AGAIN, time.monotonic() - self._away_since)
            self._away_since = None
        return len(queued)

    def _push_failed(self, count: int, error: RedisError) -> None:
        """Log a failed push. An outage is logged once, until messages are sent again."""
        if not isinstance(error, ConnectionError | TimeoutError):
            # If another program stores something else at the key of a queue, each push to that queue fails.
            self._limited_log.warning(NOT_PUSHED, count, error)
            return
        log.log(logging.WARNING if self._away_since is None else logging.DEBUG, NOT_PUSHED, count, error)
        self._away_since = self._away_since or time.monotonic()

    def depths(self, queues: Iterable[str]) -> dict[str, int]:
        """Return how many messages wait in each queue. A key that holds something else, of another program, counts as
        0."""
        names = list(queues)
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.llen(name)
            counts = pipeline.execute(raise_on_error=False)
        for count in counts:
            if isinstance(count, RedisError) and not str(count).startswith("WRONGTYPE"):
                raise count
        return {name: count if isinstance(count, int) else 0 for name, count in zip(names, counts, strict=True)}

    def not_queues(self, queues: Iterable[str]) -> dict[str, str]:
        """Return {key: type} for those of these queues whose key does not hold a list."""
        names = list(queues)
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.type(name)
            key_types = [key_type.decode() for key_type in pipeline.execute()]
        return {
            name: key_type for name, key_type in zip(names, key_types, strict=True) if key_type not in ("list", "none")
        }

    def set_aside(self) -> list[str] | None:
        """Return the names of the keys that workers set aside because these took the place of a queue.

        Returns:
            The sorted names, or None if this user may not list keys or the database has more than SCANNED_KEYS keys.
        """
        try:
            if self._redis.dbsize() > SCANNED_KEYS:
                return None
            keys = list(self._redis.scan_iter(f"*.{ASIDE}.*", count=1000))
        except NoPermissionError:
            return None
        return sorted(name.decode(errors="replace") for name in keys)

    def next_in_line(self, queue: str, count: int) -> list[tuple[bytes, MessageId | None]]:
        """Return the next `count` messages that consumers will take, each with its parsed id, or None if it is not
        ours."""
        # Consumers take from the right. A text that is longer than a message may be is read, but not kept.
        return _with_ids(client(self._url, os.getpid(), bounded=True).lrange(queue, -count, -1)[::-1])

    def take(self, queue: str, count: int) -> list[tuple[bytes, MessageId | None]]:
        """Remove the next `count` messages from a queue, and return them as `next_in_line` does. A message that the
        caller does not put back is lost."""
        return _with_ids(client(self._url, os.getpid(), bounded=True).rpop(queue, count) or [])

    def pop(self, queue: str, count: int) -> list[bytes]:
        """Remove the next `count` messages from a queue, and return their texts without parsing them."""
        texts: Any = client(self._url, os.getpid(), bounded=True).rpop(queue, count)
        return texts or []

    def put_back(self, queue: str, texts: Sequence[bytes]) -> None:
        """Put messages back so that consumers take them next, in this order."""
        if texts:
            self._sent(lambda: self._redis.rpush(queue, *reversed(texts)))

    def _sent(self, send: Callable[[], object]) -> None:
        """Run `send`, which must be safe to run twice. Retry it once after a connection error, unless Redis was away
        within the last AWAY_FOR seconds: otherwise a caller would wait twice as long for each message of an outage."""
        is_connection = False

        def is_in_vain(_request: Request, _reason: Reason) -> bool:
            return not is_connection or time.monotonic() - self._failed_at < AWAY_FOR

        def attempt() -> None:
            nonlocal is_connection
            is_connection = False
            try:
                send()
            except (ConnectionError, TimeoutError):
                is_connection = True
                # The idle connections have usually died with this connection, so the next push opens a new connection.
                self._redis.connection_pool.disconnect(inuse_connections=False)
                raise

        request = PUSH.request("messages to Redis", stop=Stop(is_in_vain))

        try:
            # The caller logs what could not be pushed.
            call(attempt, request, classified=by_driver, level=logging.DEBUG, refusal_level=logging.DEBUG)
        except RedisError:
            if request.retry_attempts:
                self._failed_at = time.monotonic()
            raise
        self._failed_at = -math.inf

    def cut(self, queue: str, most: int) -> None:
        """Remove all messages of a queue except the `most` that were pushed last."""
        self._redis.ltrim(queue, 0, most - 1)

    def note_nudge(self) -> None:
        """Record that a beat sent a nudge just now."""
        with self._redis.pipeline() as pipeline:
            pipeline.lpush(NUDGED, "1")
            pipeline.ltrim(NUDGED, 0, 0)
            pipeline.execute()

    def nudged_ago(self) -> float | None:
        """Return the whole seconds since a beat's last nudge, or since Redis started.

        Returns:
            None if no beat recorded a nudge, if this user may not ask, or if the server does not know.
        """
        try:
            idle = self._redis.object("idletime", NUDGED)
        except ResponseError:
            return None
        return float(idle) if isinstance(idle, int) else None

    def workers_answering(self, database: str, timeout: float) -> list[str] | None:
        """Return the names of the workers on this database that answer through Redis within `timeout` seconds; None if
        this user may not ask."""
        from recovery.queue.remote import answering

        try:
            return answering(self._url, database, timeout)
        except NoPermissionError:
            return None

    def remove(self, queue: str) -> None:
        """Drop all messages of a queue. Do not raise: a worker that takes a stale message drops it as well."""
        try:
            self._redis.delete(queue)
        except RedisError as error:
            log.warning("could not discard the messages in %s (%s)", queue, error)

    def tell_settings_changed(self) -> bool:
        """Notify all workers of changed settings or blocked actors. Return whether the notice was sent.

        Do not raise: workers read the change with their next heartbeats anyway.
        """
        from recovery.queue.remote import SETTINGS_CHANGED, tell_workers

        sent = tell_workers(self._url, SETTINGS_CHANGED)
        if not sent:
            log.warning("could not notify workers of the change; they read it with their next heartbeats")
        return sent

    def answers(self, worker: str, timeout: float) -> bool:
        """Return whether the main loop of the worker `name@host` answers within `timeout` seconds."""
        from recovery.queue.remote import answers

        return answers(self._url, worker, timeout)

    def is_there(self, within: float) -> bool:
        """Return whether the server answers within `within` seconds. Do not raise."""
        try:
            return bool(client(self._url, os.getpid(), within).ping())
        except RedisError:
            return False

    def condition(self) -> RedisCondition:
        """Return the condition of the server, as it reports it."""
        return ask_condition(self._redis)

    def check(self) -> None:
        """Check that the server answers, admits this user, and runs in a mode that we can use.

        Raises:
            CertificateRefused: A certificate is wrong, ours or the server's.
            ServerRefused: The server refuses this user or password.
            ServerUnavailable: The server does not answer, or answers with an error that may pass.
            ServerUnfit: The server is a cluster or a Sentinel.
        """
        try:
            self._redis.ping()
            mode = introduce(self._redis).get("mode")
        except RedisError as error:
            reason = told(error, self._url).rstrip(".")
            if isinstance(error, ConnectionError) and (fault := self._fault()) is not None:
                raise CertificateRefused(f"Redis at {public(self._url)} {fault.what}. {fault.advice}") from None
            if _is_refusal(error):
                raise ServerRefused(
                    f"Redis at {public(self._url)} refuses: {reason}. "
                    "Check the user and password in RECOVERY_BROKER_URL"
                ) from None
            network = "network, TLS" if certificates.of_redis(self._url) is None else "network, TLS at this port"
            # This includes answers that may change: the disk is full (MISCONF), or the primary is away (MASTERDOWN).
            raise ServerUnavailable(
                f"Redis at {public(self._url)} does not answer: {reason}. Check that it runs, and that this "
                f"machine reaches it: RECOVERY_BROKER_URL, {network}. For development `recovery up` starts one"
            ) from None
        if mode is not None and mode in _MODES:
            raise ServerUnfit(f"Redis at {public(self._url)} {_MODES[mode]} in RECOVERY_BROKER_URL")

    def _fault(self) -> handshake.Fault | None:
        """Return what is wrong with a certificate, ours or the server's; None if both are good."""
        address, tls = (
            client(self._url, os.getpid()).connection_pool.connection_kwargs,
            certificates.of_redis(self._url),
        )
        # The address may have no host or port.
        endpoint = address.get("host", DEFAULT_HOST), address.get("port", DEFAULT_PORT)
        return handshake.speaks_tls(endpoint, certificates.REDIS) if tls is None else handshake.fault(endpoint, tls)


def _with_ids(texts: Any) -> list[tuple[bytes, MessageId | None]]:
    return [(text, id_of(text)) for text in texts]


def _is_refusal(error: RedisError) -> bool:
    return isinstance(error, AuthenticationError | NoPermissionError) or str(error).startswith(_REFUSALS)
