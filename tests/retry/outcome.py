"""What becomes of a real error: what it is, and what the orchestrator has done with a call that failed with it."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.retry import BestEffort, Classified, Reason, Request, RetryAction, ServerCall
from recovery.retry.in_place import Classify, by_shipped, call


@dataclass(frozen=True)
class Outcome:
    code: str
    reason: str
    error_class: str
    idempotent: str
    """`retry`; `fail`, where its strategy wants none; `not asked`, where waiting can't help."""
    not_idempotent: str

    @classmethod
    def passes(cls, code: str, reason: str) -> Outcome:
        """Tried again, whatever it is."""
        return cls(code, reason, "retriable", "retry", "retry")

    @classmethod
    def in_flight(cls, code: str, reason: str) -> Outcome:
        """Tried again if it is idempotent: nobody knows whether it was done."""
        return cls(code, reason, "retriable", "retry", "fail")

    @classmethod
    def stays(cls, code: str, reason: str = "UNKNOWN") -> Outcome:
        """Not tried again: a person has to see to it."""
        return cls(code, reason, "not retriable", "not asked", "not asked")


def outcome(error: Exception, classified: Classify = by_shipped) -> Outcome:
    """What it is, and what becomes of a call that fails with it once."""
    found: Classified = classified(error)
    return Outcome(
        found.code.name, found.reason.name, found.code.error_class.value,
        _done_with(error, True, classified), _done_with(error, False, classified),
    )  # fmt: skip


def _done_with(error: Exception, idempotent: bool, classified: Classify) -> str:
    asked: list[Reason] = []
    sent: list[int] = []

    class Asked(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            asked.append(reason)
            return await super().retry_after(request, reason)

    def step() -> str:
        sent.append(1)
        if len(sent) == 1:
            raise error
        return "done"

    try:
        done = call(step, ServerCall("ask", Asked(), idempotent), classified=classified, wait=lambda _: None)
    except Exception as raised:
        assert raised is error and len(sent) == 1
        return "fail" if asked else "not asked"
    assert done == "done" and len(sent) == 2
    return "retry"
