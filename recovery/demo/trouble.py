"""What breaks in a demo, and until when: workers are killed or, with chaos, faults of every kind occur.

With chaos, one fault follows another, in a separate thread, because the thread that watches the processes may wait for
an unavailable database. The seed decides the order; each kind occurs once before a kind is repeated. In the pause
between two faults the cluster recovers, so that processes make progress.

When the time for faults is over, the last fault is repaired. Processes then have the rest of the time to end, even on a
slow machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from recovery.demo.faults import Broken, Fault, faults
from recovery.demo.options import LASTS, Chaos, FaultKind, Options
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.stack import Stack

MENDED_TIMEOUT = 120.0
"""Maximum seconds until the last fault is over: the longest fault, and the start of a server."""
LOOK_EVERY = 0.2


class Storm:
    """Causes faults from `start` to `stop`. `tell` is called in its thread with a description of each fault."""

    def __init__(
        self, faults: Mapping[FaultKind, Fault], chaos: Chaos, pause: float, tell: Callable[[str], None]
    ) -> None:
        self.struck: Counter[FaultKind] = Counter()
        self._faults, self._chaos, self._pause, self._tell = faults, chaos, pause, tell
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="storm", daemon=True)

    def start(self) -> None:
        """Start. The first fault follows after a pause."""
        self._thread.start()

    def end(self) -> None:
        """Cause no more faults. The last one may still be repaired."""
        self._ending.set()

    def stop(self) -> None:
        """Cause no more faults, and wait until the last one is repaired."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(MENDED_TIMEOUT)

    def failed(self) -> bool:
        """Return whether a fault itself failed. Then no more faults follow."""
        return self._error is not None

    def check(self) -> None:
        """Raise the error of a fault that itself failed, if any."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for kind in self._chaos.deck(list(self._faults)):
                if self._ending.wait(self._pause):
                    return
                with self._faults[kind]() as broken:
                    self.struck[kind] += 1
                    self._tell(broken.what)
                    self._wait_for_end(broken, LASTS.get(kind, 0.0))
        except BaseException as error:
            self._error = error

    def _wait_for_end(self, broken: Broken, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while (seconds_left := ends_at - time.monotonic()) > 0 and not broken.is_over():
            if self._ending.wait(min(seconds_left, LOOK_EVERY)):
                return


class Trouble:
    """Breaks things from `start` on. `tell` is called with a description of each fault, from any thread."""

    def __init__(
        self, options: Options, stack: Stack, workforce: Workforce, chaos: Chaos, tell: Callable[[str], None]
    ) -> None:
        self._options, self._stack, self._workforce, self._chaos = options, stack, workforce, chaos
        self._tell = tell
        self._storm: Storm | None = None
        self._ends_at = 0.0

    def start(self, resources: Resources) -> None:
        """Start. The first fault or kill follows after a pause."""
        now = time.monotonic()
        self._ends_at = now + self._options.breaks_for
        if self._options.chaos:
            possible = faults(self._stack, self._workforce, resources, self._chaos)
            if wanted := self._options.faults:
                possible = {kind: fault for kind, fault in possible.items() if kind.value in wanted}
            if not possible:
                raise InputError(f"--fault {' '.join(wanted)}: the demo breaks only servers that it has started")
            self._storm = Storm(possible, self._chaos, self._options.kill_every, self._tell)
            self._storm.start()
        else:
            self._chaos.start(now)

    def tick(self, resources: Resources) -> None:
        """Kill a worker if it is time, check all children, and end the faults when their time is over.

        Raises the error of a fault that itself failed, and ServerError if a worker ended by itself.
        """
        if time.monotonic() > self._ends_at:
            self._end()
        if self._storm is not None:
            self._storm.check()
        self._workforce.tick(resources.store)

    def stop(self) -> None:
        """Break nothing more, and wait until the last fault is repaired."""
        self._end()
        if self._storm is not None:
            self._storm.stop()

    @property
    def struck(self) -> Mapping[str, int]:
        """{kind of fault: how often}. Empty without chaos."""
        return {kind.value: count for kind, count in sorted(self._storm.struck.items())} if self._storm else {}

    def _end(self) -> None:
        self._chaos.stop()
        if self._storm is not None:
            self._storm.end()
