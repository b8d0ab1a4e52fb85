"""How this project tries its own work again: one policy for each kind, in the interface that actors have (Hive, 'Retry
at Instance Level': "use the same Retry Interface across replication").

What a thread waits for is a request (`OwnWork.request`), of which the orchestrator says what becomes: see `in_place`.
What has to survive a crash waits in its record, whose deadline is the policy's next delay (`OwnWork.delay`); of many
records at once the database works it out, by the same policy (`store.expressions.by_policy`).

Each kind says whether it is idempotent, as actors do. So far all are: a write is a compare-and-set on the state it was
decided from, or an insert under an id of its own, and a message that is pushed twice is stale the second time.

What has no row here is done again by its own turn, and not as a retry: scanners with the next nudge, heartbeats.
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
    """One kind of our own work, and how it is tried again."""

    name: str
    policy: Backoff
    """Its delays have no jitter, unless it says so: what fails together is spread by whoever waits."""
    idempotent: bool
    """Whether doing it twice is the same as doing it once."""
    free: int = 1
    """Failures in a row that are followed by the first delay; with the next one it begins to grow."""
    tries: int | None = None
    """After which it fails; None: never, or once its deadline is over."""
    seconds: float | None = None
    """Its deadline, from its first try on. A delay is cut to it, and it is cancelled then."""

    def delay(self, failures: int) -> float:
        """Return the seconds until the next try, after this many failures in a row: at least one."""
        return self.policy.base(max(0, failures - self.free))

    def beginning_with(self, seconds: float) -> Backoff:
        """Return the policy with another first delay, which a setting says."""
        return replace(self.policy, initial=seconds, maximum=max(seconds, self.policy.maximum), total=LONGEST)

    def request(
        self, name: str, *, seconds: float | None = None, stop: Stop | None = None, calculator: Calculator | None = None
    ) -> ServerCall:
        """Return a request for one piece of this work.

        Args:
            name: What the log calls it.
            seconds: Its deadline, if it is not the kind's own.
            stop: When it fails, besides after `tries`.
            calculator: Seconds of delay by how many retries there were, if not the policy's.
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


# In a thread.
STORE_CALL = OwnWork("a write to MongoDB for a task that ran", _growing(0.1, 0.5), idempotent=True)
"""That MongoDB is back is seen within half a second, which is the best effort's longest delay."""
REGISTRATION = OwnWork("processes that are saved but not registered", _growing(0.1, 1), idempotent=True)
"""Else each would begin after its idle timeout."""
PUSH = OwnWork("messages that are pushed to Redis", _steady(0), idempotent=True, tries=2)
"""An idle connection may have died: the second try has a new one. What is not pushed is found by its deadline."""
WORKER_START = OwnWork("the start of a worker, while a server is away", _steady(1), idempotent=True, seconds=60)
"""Long enough for a failover. Whoever runs workers starts them again."""
INDEX_BUILD = OwnWork("a validator, while an index is built", _steady(0.1), idempotent=True, seconds=600)
"""For 100 million records an index takes minutes."""
EXECUTOR_CONNECTION = OwnWork("the connection of a Spark executor", _growing(0.5, 4), idempotent=True, seconds=60)
"""Long enough for a failover. It has no lease yet, so nobody waits for it."""
SPARK_JOB = OwnWork("a Spark job that got nothing done", _steady(6), idempotent=True, tries=3)
"""Ranges that failed are free again by then, after OPERATION_RANGE."""
SPARK_SESSION = OwnWork("a Spark session that failed", _steady(10), idempotent=True)
"""Its start takes some seconds of all cores."""
UNFIT_WORKER = OwnWork("a worker whose slots can run no task", _growing(2, 60), idempotent=True)
"""A full disk or a missing mount is not mended within a minute, and each try costs a pool process."""

# In a record.
LOST_MESSAGE = OwnWork("a lost message, in message timeouts", _growing(1, 30), idempotent=True, free=6)
"""Five outages in a row may be: from then on something eats from the queue, and is not fed at full rate."""
FAILED_APPLY = OwnWork("an end that can't be applied, from the apply timeout on", _growing(5, 300), idempotent=True)
"""What can't be applied now mostly can't be applied ever; but somebody may have repaired its process."""
REFUSED_CALL = OwnWork("a call that no worker's code accepts", _growing(1, 30), idempotent=True)
"""A new worker has it within half a minute."""
PINNED_CALL = OwnWork("a pinned task, while its workers are busy", _growing(0.5, 30), idempotent=True)
"""Thousands of them may wait, and each try costs a claim."""
OPERATION_RANGE = OwnWork("a range of an operation, while a server is away", _steady(5), idempotent=True)
"""Below the half minute after which a lease ends anyway."""
DAMAGED_OPERATION = OwnWork("an operation whose own records stop it", _steady(60), idempotent=True)
"""Only a person can mend it."""
OPERATION_IN_SPARK = OwnWork("an operation that failed in Spark", _steady(120), idempotent=True)
"""Workers take over what was left alone for one minute."""

ALL = tuple(one for one in vars().values() if isinstance(one, OwnWork))
