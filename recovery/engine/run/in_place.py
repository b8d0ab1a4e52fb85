"""Retries in place: a failed attempt whose retry is due before the next scan waits in its slot.

Such a retry costs no write and begins exactly after its delay. It is counted with the next write of the record: the end
of the task, or a longer delay. A killed worker loses only that count, because the record is still that of the claim.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from recovery import metrics
from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import Host, pass_of
from recovery.engine.resources import Resources
from recovery.errors import StoreError
from recovery.records import Decision

log = logging.getLogger(__name__)

LONGEST = 2.0
"""Maximum total seconds that an attempt waits in its slot. A retry that is due later waits in the record."""
BEAT_EVERY = 0.5
"""Maximum seconds between the heartbeats of a waiting attempt. A third of its `worker_timeout` is the limit if it is
shorter. So a function that is called again has at least two thirds of its timeout."""
BEATS_PER_TIMEOUT = 3
"""Minimum number of heartbeats within a `worker_timeout`."""


class SlotWait:
    """The waits of one attempt in its slot."""

    def __init__(
        self, resources: Resources, actor: Actor[..., Any], decision: Decision, host: Host, began: float
    ) -> None:
        """Create the waits of an attempt whose function was first called at `began`, by `time.monotonic`."""
        self._resources, self._actor, self._decision, self._host = resources, actor, decision, host
        self._waited = 0.0
        self._beat_at = began
        self._beat_every = min(BEAT_EVERY, actor.preferences.worker_timeout / BEATS_PER_TIMEOUT)

    def has_room(self, delay: float) -> bool:
        """Return whether a retry after this delay, in seconds, waits in the slot.

        It does not if the next scan comes first, if the total would exceed LONGEST, or if this worker was told to end.
        """
        return (
            delay < self._resources.settings.scan_interval and self._waited + delay <= LONGEST and self._host.takes_more
        )

    def wait(self, delay: float, failed_at: float) -> bool:
        """Wait for the delay. Return False if the attempt has lost its claim meanwhile.

        Args:
            delay: Seconds.
            failed_at: When the attempt failed, by `time.monotonic`. The delay starts then, so time spent on reading
                retry options counts towards it.
        """
        until = failed_at + delay
        self._waited += delay
        while True:
            # Before the wait, because the function may have used most of its worker_timeout.
            if time.monotonic() >= self._beat_at + self._beat_every and not self._beat():
                return False
            now = time.monotonic()
            if now >= until:
                return True
            time.sleep(max(0.0, min(until, self._beat_at + self._beat_every) - now))

    def _beat(self) -> bool:
        """Send a heartbeat. Return False if the claim is lost."""
        preferences, decision = self._actor.preferences, self._decision
        # Set even if the write fails, so that the next heartbeat is sent when it is due and not at once.
        self._beat_at = time.monotonic()
        try:
            held = self._resources.store.decisions.extend(
                decision.id, pass_of(decision), preferences.worker_timeout, preferences.task_limit
            )
        except StoreError as error:
            log.warning("%s: heartbeat not written (%s); its deadline stands", decision.id, error)
            return True
        if not held:
            metrics.STALE.labels("claim lost").inc()
        return held
