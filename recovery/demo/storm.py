"""One fault after the other, in a thread of its own: what watches the processes may wait for a database that is away.

Which comes next is by the seed; each kind comes once before one comes again. Between two there is a pause, in which
things recover, so that the processes get on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from recovery.demo.chaos import Chaos
from recovery.demo.faults import Broken, Fault
from recovery.demo.kinds import LASTS, Kind

MENDED_TIMEOUT = 120.0
"""Seconds in which the last fault is over: what lasts longest, and the start of a server."""
LOOK_EVERY = 0.2


class Storm:
    """Strikes from `start` to `stop`. `tell` is called, in its thread, with each fault in words."""

    def __init__(self, faults: Mapping[Kind, Fault], chaos: Chaos, pause: float, tell: Callable[[str], None]) -> None:
        self.struck: Counter[Kind] = Counter()
        self._faults, self._chaos, self._pause, self._tell = faults, chaos, pause, tell
        self._ending = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="storm", daemon=True)

    def start(self) -> None:
        """The first fault comes after a pause."""
        self._thread.start()

    def end(self) -> None:
        """No more faults; the last one is being mended."""
        self._ending.set()

    def stop(self) -> None:
        """No more faults; returns when the last one is mended."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(MENDED_TIMEOUT)

    def failed(self) -> bool:
        """Whether something went wrong with a fault itself; then there are no more."""
        return self._error is not None

    def check(self) -> None:
        """Raise what went wrong with a fault itself."""
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
                    self._last(broken, LASTS.get(kind, 0.0))
        except BaseException as error:
            self._error = error

    def _last(self, broken: Broken, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not broken.is_over():
            if self._ending.wait(min(left, LOOK_EVERY)):
                return
