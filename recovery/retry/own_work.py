"""Retry policies of this project's own work, in the interface that actors have.

Hive asks for this ('Retry at Instance Level': "use the same Retry Interface across replication").

Work for which a thread waits is a request (`OwnWork.request`), which the orchestrator retries: see `in_place`. Work
that must survive a crash waits in a record, whose deadline is set by the policy's next delay (`OwnWork.delay`). For
many records at once, the database computes the same delay (`store.expressions.by_policy`).

Each kind of work says whether it is idempotent, as actors do. All kinds are: a write is a compare-and-set on the state
from which it was decided, or an insert with its own id, and the second copy of a pushed message is stale.

Periodic work is not listed here, because its next round repeats it without a retry: scans and heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recovery.limits import LONGEST
from recovery.retry.policy import Backoff
from recovery.retry.strategies import (
    BestEffort,
    Calculator,
    RetryStrategy,
    ServerCall,
    Stop,
    Until,
    stop_after_attempts,
)


@dataclass(frozen=True, slots=True)
class OwnWork:
    """A kind of our own work, and how it is retried."""

    name: str
    policy: Backoff
    """The delays. They have no jitter unless the policy says so, because the waiting code itself spreads retries."""
    idempotent: bool
    """Whether doing it twice is the same as doing it once."""
    free: int = 1
    """Number of failures in a row that are followed by the first delay. After more failures the delay grows."""
    tries: int | None = None
    """Number of tries after which it fails; None: it never fails, or only at its deadline."""
    seconds: float | None = None
    """Seconds from the first try to its deadline. The last delay is shortened to the deadline, at which the work is
    cancelled."""

    def delay(self, failures: int) -> float:
        """Return the seconds until the next try, after this many failures in a row. The number is at least 1."""
        return self.policy.base(max(0, failures - self.free))

    def beginning_with(self, seconds: float) -> Backoff:
        """Return the policy with another first delay in seconds, which comes from a setting."""
        return replace(self.policy, initial=seconds, maximum=max(seconds, self.policy.maximum), total=LONGEST)

    def request(
        self, name: str, *, seconds: float | None = None, stop: Stop | None = None, calculator: Calculator | None = None
    ) -> ServerCall:
        """Return a request for one piece of this work.

        Args:
            name: Its name in the log.
            seconds: Seconds until its deadline, if different from the kind's.
            stop: When it fails, in addition to the limit of `tries`.
            calculator: Seconds of delay by the number of earlier retries, if different from the policy's.
        """
        strategy: RetryStrategy = BestEffort(calculator or (lambda retries: self.delay(retries + 1)))
        for condition in (stop, None if self.tries is None else stop_after_attempts(self.tries - 1)):
            strategy = strategy if condition is None else Until(condition, strategy)
        return ServerCall(
            name, strategy, idempotent=self.idempotent, seconds=self.seconds if seconds is None else seconds
        )


def _growing(initial: float, maximum: float) -> Backoff:
    return Backoff(initial=initial, coefficient=2, jitter=(0, 0), maximum=maximum)


def _steady(seconds: float) -> Backoff:
    return Backoff(initial=seconds, coefficient=1, jitter=(0, 0), maximum=seconds)


# Work for which a thread waits.
STORE_CALL = OwnWork("a write to MongoDB for a task that ran", _growing(0.1, 0.5), idempotent=True)
"""The write succeeds at most half a second after MongoDB is back. This is also the longest delay of best effort."""
REGISTRATION = OwnWork("the registration of processes that are saved", _growing(0.1, 1), idempotent=True)
"""Without this retry each process would begin only after its idle timeout."""
PUSH = OwnWork("the push of messages to Redis", _steady(0), idempotent=True, tries=2)
"""An idle connection may be dead, and the second try uses a new one. A failed push is repaired by the deadline."""
WORKER_START = OwnWork("the start of a worker, while a server is away", _steady(1), idempotent=True, seconds=60)
"""The total time is long enough for a failover. After it, the supervisor of the workers starts the worker again."""
INDEX_BUILD = OwnWork("the update of a validator, while an index is built", _steady(0.1), idempotent=True, seconds=600)
"""To build an index for 100 million records takes minutes."""
EXECUTOR_CONNECTION = OwnWork("the connection of a Spark executor", _growing(0.5, 4), idempotent=True, seconds=60)
"""The total time is long enough for a failover. The executor has no lease yet, so nothing waits for it."""
SPARK_JOB = OwnWork("a Spark job that made no progress", _steady(6), idempotent=True, tries=3)
"""After this delay the failed ranges are free again, by OPERATION_RANGE."""
SPARK_SESSION = OwnWork("a Spark session that failed", _steady(10), idempotent=True)
"""A start uses all cores for some seconds."""
UNFIT_WORKER = OwnWork("a worker whose slots can run no task", _growing(2, 60), idempotent=True)
"""A full disk or a missing mount is rarely repaired within a minute, and each try costs a pool process."""

# Work that waits in a record.
LOST_MESSAGE = OwnWork("a lost message, in message timeouts", _growing(1, 30), idempotent=True, free=6)
"""Up to five losses in a row may be outages. After more, another program probably consumes the queue."""
FAILED_APPLY = OwnWork("a result that can't be applied, from the apply timeout on", _growing(5, 300), idempotent=True)
"""Such a result usually stays inapplicable, unless somebody repairs its process."""
REFUSED_CALL = OwnWork("a call that no worker's code accepts", _growing(1, 30), idempotent=True)
"""With the longest delay, a new worker gets the call within half a minute."""
PINNED_CALL = OwnWork("a pinned task, while its workers are busy", _growing(0.5, 30), idempotent=True)
"""Thousands of such tasks may wait, and each try costs a claim."""
OPERATION_RANGE = OwnWork("a range of an operation, while a server is away", _steady(5), idempotent=True)
"""The delay is shorter than the half minute after which the lease of a range expires anyway."""
DAMAGED_OPERATION = OwnWork("an operation whose own records stop it", _steady(60), idempotent=True)
"""Only a person can repair such records."""
OPERATION_IN_SPARK = OwnWork("an operation that failed in Spark", _steady(120), idempotent=True)
"""Meanwhile workers take over an operation that nothing has advanced for one minute."""

ALL = tuple(work for work in vars().values() if isinstance(work, OwnWork))
