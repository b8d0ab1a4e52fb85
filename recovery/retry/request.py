"""What may be tried again (RFC 49, 'Request Annotation'): an attempt of a task, or one of our own calls to a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from recovery.retry.reasons import Reason

if TYPE_CHECKING:
    from recovery.retry.strategies import RetryStrategy


class Request(Protocol):
    """What strategies and the orchestrator know of a request."""

    @property
    def name(self) -> str:
        """What the log calls it."""

    @property
    def idempotent(self) -> bool:
        """Whether doing it twice is the same as doing it once."""

    @property
    def retry_strategy(self) -> RetryStrategy:
        """The default one, or its own."""

    @property
    def retry_attempts(self) -> int:
        """Retries that already happened."""

    @property
    def cycle_retries(self) -> int:
        """The same since the error that it has now came first: what a policy's delays grow with."""

    @property
    def retry_reasons(self) -> frozenset[Reason]:
        """Their reasons."""

    @property
    def remaining(self) -> float | None:
        """Seconds until its deadline; None if it has none."""

    @property
    def context(self) -> Mapping[str, Any]:
        """What its user gave for strategies to read (the RFC's clientContext)."""

    def note_retry(self, reason: Reason) -> None:
        """Count a retry."""


@dataclass(slots=True)
class Call:
    """A request that lives in memory alone: a call of ours to a server. `seconds` after it was made is its deadline."""

    name: str
    retry_strategy: RetryStrategy
    idempotent: bool = False
    seconds: float | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    retry_attempts: int = 0
    retry_reasons: frozenset[Reason] = frozenset()
    _made_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._made_at = self.clock()

    @property
    def remaining(self) -> float | None:
        return None if self.seconds is None else self.seconds - (self.clock() - self._made_at)

    @property
    def cycle_retries(self) -> int:
        return self.retry_attempts

    def note_retry(self, reason: Reason) -> None:
        self.retry_attempts += 1
        self.retry_reasons |= {reason}
