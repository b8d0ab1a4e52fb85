"""Redis as the broker: push messages, ask for depths. Redis holds hints; losing it costs time, never work.

A push that fails, or whose reply is lost, is sent again once, over another connection: one that was idle may have died
since, without a word. A message pushed twice is harmless, since the first claim makes the second message stale. Where
that fails as well Redis is away: the decision is queued in MongoDB with a deadline, and a message that does not come is
found by MESSAGE_LOST.
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
"""Up to so many keys, of whomever, are looked through for these: 0.1 s."""
AWAY_FOR = 10.0
"""Seconds after a message could not be sent, over two connections, in which others are tried once."""
NOT_PUSHED = "could not push %d messages (%s): they stay queued in MongoDB and are requeued after their message timeout"
SENT_AGAIN = "Redis takes messages again, after %.0f s"
"""The first line of an outage in the log, and the last."""
NUDGED = "recovery.nudge.sent"
"""A list of one entry that each nudge of a beat writes anew: Redis knows how long ago that was."""
DEFAULT_HOST, DEFAULT_PORT = "localhost", 6379
"""Redis's own, as redis-py has them."""
_MODES = {
    "cluster": "runs in cluster mode, in which nobody can wait for messages of several queues at once. Give the "
    "address of a single server (cluster-enabled no)",
    "sentinel": "is a Sentinel, which keeps no messages. Give the address of the primary that it watches",
}
"""Modes of a server that we can't use, and what to do."""
_REFUSALS = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
"""How answers begin that no waiting helps."""


@translated
class Broker:
    """The queues at one Redis address. Not to be carried over a fork; one per process is made as needed."""

    def __init__(self, url: str, signer: Signer = UNSIGNED) -> None:
        self._url, self._signer = url, signer
        self._said = Seldom(log)
        self._failed_at = -math.inf
        self._away_since: float | None = None
        """When a message could first not be sent since one was, by the monotonic clock."""

    @property
    def _redis(self) -> Redis:
        return client(self._url, os.getpid())

    def push(self, queued: Sequence[Queued]) -> int:
        """Push a message for each decision, in one round trip. Return how many were pushed: all, or 0.

        Of a decision whose actor no actor can be called none is pushed: it is damaged, and its actor's name is perhaps
        that of a list of somebody else's. Its deadline has it looked at.
        """
        if refused := sum(not is_actor_name(one.actor) for one in queued):
            self._said.warning("%d messages not pushed: no actor can have the name that their tasks are for", refused)
            queued = [one for one in queued if is_actor_name(one.actor)]
            if not queued:
                return 0
        last: dict[str, list[str]] = defaultdict(list)
        first: dict[str, list[str]] = defaultdict(list)
        for one in queued:
            (first if one.first else last)[one.actor].append(encode(one, self._signer))

        def send() -> None:
            with self._redis.pipeline(transaction=False) as pipeline:
                for queue, texts in last.items():
                    pipeline.lpush(queue, *texts)
                for queue, texts in first.items():  # consumers take from this end
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
        """Log it: of an outage once, until messages are sent again."""
        if not isinstance(error, ConnectionError | TimeoutError):
            # Whoever puts something else in the place of a queue has each push of it fail.
            self._said.warning(NOT_PUSHED, count, error)
            return
        log.log(logging.WARNING if self._away_since is None else logging.DEBUG, NOT_PUSHED, count, error)
        self._away_since = self._away_since or time.monotonic()

    def depths(self, queues: Iterable[str]) -> dict[str, int]:
        """Return how many messages wait in each queue: 0 if its key holds something else, which is somebody's."""
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
        """Return {key: its type} of those of these queues whose key holds something that is no queue."""
        names = list(queues)
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.type(name)
            kinds = [kind.decode() for kind in pipeline.execute()]
        return {name: kind for name, kind in zip(names, kinds, strict=True) if kind not in ("list", "none")}

    def set_aside(self) -> list[str] | None:
        """Names of what workers found in the place of a queue, and set aside; None where we may not list keys, or they
        are too many to be looked through."""
        try:
            if self._redis.dbsize() > SCANNED_KEYS:
                return None
            found = list(self._redis.scan_iter(f"*.{ASIDE}.*", count=1000))
        except NoPermissionError:
            return None
        return sorted(name.decode(errors="replace") for name in found)

    def next_in_line(self, queue: str, count: int) -> list[tuple[bytes, MessageId | None]]:
        """Return the next `count` messages that consumers will take, each with what its id tells if it is ours."""
        # Consumers take from the right. What is too large for a message of ours is not kept, only read.
        return _told(client(self._url, os.getpid(), bounded=True).lrange(queue, -count, -1)[::-1])

    def take(self, queue: str, count: int) -> list[tuple[bytes, MessageId | None]]:
        """Take the next `count` messages out of a queue, as `next_in_line` returns them. One that is not put back is
        lost."""
        return _told(client(self._url, os.getpid(), bounded=True).rpop(queue, count) or [])

    def pop(self, queue: str, count: int) -> list[bytes]:
        """Take the next `count` messages out of a queue, and return their texts, unread."""
        texts: Any = client(self._url, os.getpid(), bounded=True).rpop(queue, count)
        return texts or []

    def put_back(self, queue: str, texts: Sequence[bytes]) -> None:
        """Put messages back, so that they are the next that are taken, in this order."""
        if texts:
            self._sent(lambda: self._redis.rpush(queue, *reversed(texts)))

    def _sent(self, send: Callable[[], object]) -> None:
        """Send what may arrive twice; once more, if a connection is to blame and Redis was not away just now: whoever
        waits for it must not wait twice as long for each message of an outage."""
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
                # Those that are idle died with it, mostly: whoever sends next sends over a new one.
                self._redis.connection_pool.disconnect(inuse_connections=False)
                raise

        request = PUSH.request("messages to Redis", stop=Stop(is_in_vain))

        try:
            # Whoever pushes logs what is not pushed.
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
        """Note that a beat nudged just now."""
        with self._redis.pipeline() as pipeline:
            pipeline.lpush(NUDGED, "1")
            pipeline.ltrim(NUDGED, 0, 0)
            pipeline.execute()

    def nudged_ago(self) -> float | None:
        """Whole seconds since a beat nudged, or since Redis started; None where no beat did that says so, or where this
        user may not ask, or the server does not know."""
        try:
            idle = self._redis.object("idletime", NUDGED)
        except ResponseError:
            return None
        return float(idle) if isinstance(idle, int) else None

    def workers_answering(self, database: str, timeout: float) -> list[str] | None:
        """Names of the workers on this database that answer through Redis within so many seconds; None where this user
        may not ask."""
        from recovery.queue.remote import answering

        try:
            return answering(self._url, database, timeout)
        except NoPermissionError:
            return None

    def remove(self, queue: str) -> None:
        """Drop all messages of a queue. Does not raise: whoever takes one that is stale drops it."""
        try:
            self._redis.delete(queue)
        except RedisError as error:
            log.warning("messages in %s not discarded (%s)", queue, error)

    def tell_settings_changed(self) -> bool:
        """Tell all workers that settings changed, or what is blocked: whether it was sent. Does not raise: they learn
        of it with their next heartbeats."""
        from recovery.queue.remote import SETTINGS_CHANGED, tell_workers

        told = tell_workers(self._url, SETTINGS_CHANGED)
        if not told:
            log.warning("workers could not be told of the change: they take it up with their next heartbeats")
        return told

    def answers(self, worker: str, timeout: float) -> bool:
        """Whether the main loop of a worker, `name@host`, answers in time."""
        from recovery.queue.remote import answers

        return answers(self._url, worker, timeout)

    def is_there(self, within: float) -> bool:
        """Whether the server answers within so many seconds. Does not raise."""
        try:
            return bool(client(self._url, os.getpid(), within).ping())
        except RedisError:
            return False

    def condition(self) -> RedisCondition:
        """Return how the server is, by what it tells of itself."""
        return ask_condition(self._redis)

    def check(self) -> None:
        """Raise ServerUnavailable, ServerRefused or ServerUnfit unless the server answers, lets us in and is one."""
        try:
            self._redis.ping()
            mode = introduce(self._redis).get("mode")
        except RedisError as error:
            said = told(error, self._url).rstrip(".")
            if isinstance(error, ConnectionError) and (fault := self._fault()) is not None:
                raise CertificateRefused(f"Redis at {public(self._url)} {fault.what}. {fault.advice}") from None
            if _is_refusal(error):
                raise ServerRefused(
                    f"Redis at {public(self._url)} refuses: {said}. Check the user and password in RECOVERY_BROKER_URL"
                ) from None
            network = "network, TLS" if certificates.of_redis(self._url) is None else "network, TLS at this port"
            # A full disk (MISCONF) or a primary that is away (MASTERDOWN) among them: answers that change.
            raise ServerUnavailable(
                f"Redis at {public(self._url)} does not answer: {said}. Check that it runs, and that this "
                f"machine reaches it: RECOVERY_BROKER_URL, {network}. For development `recovery up` starts one"
            ) from None
        if mode is not None and mode in _MODES:
            raise ServerUnfit(f"Redis at {public(self._url)} {_MODES[mode]} in RECOVERY_BROKER_URL")

    def _fault(self) -> handshake.Fault | None:
        """Return what is wrong with a certificate, ours or the server's; None if nothing is."""
        place, tls = client(self._url, os.getpid()).connection_pool.connection_kwargs, certificates.of_redis(self._url)
        # An address need not name a port.
        at = place.get("host", DEFAULT_HOST), place.get("port", DEFAULT_PORT)
        return handshake.speaks_tls(at, certificates.REDIS) if tls is None else handshake.fault(at, tls)


def _told(texts: Any) -> list[tuple[bytes, MessageId | None]]:
    return [(text, id_of(text)) for text in texts]


def _is_refusal(error: RedisError) -> bool:
    return isinstance(error, AuthenticationError | NoPermissionError) or str(error).startswith(_REFUSALS)
