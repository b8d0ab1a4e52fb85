"""What is broken in a demo, and until when: workers that are killed or, with chaos, faults of every kind.

With chaos one fault comes after the other, in a thread of its own: what watches the processes may wait for a database
that is away. Which comes next is by the seed; each kind comes once before one comes again. Between two there is a
pause, in which things recover, so that the processes get on.

Once its time is over nothing more is broken, and what was is mended; then processes have the rest of their time to
come to their ends, however slow the machine is.
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
"""Seconds in which the last fault is over: what lasts longest, and the start of a server."""
LOOK_EVERY = 0.2


class Storm:
    """Strikes from `start` to `stop`. `tell` is called, in its thread, with each fault in words."""

    def __init__(
        self, faults: Mapping[FaultKind, Fault], chaos: Chaos, pause: float, tell: Callable[[str], None]
    ) -> None:
        self.struck: Counter[FaultKind] = Counter()
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


class Trouble:
    """Breaks things from `start` on. `tell` is called with each fault in words, from any thread."""

    def __init__(
        self, options: Options, stack: Stack, workforce: Workforce, chaos: Chaos, tell: Callable[[str], None]
    ) -> None:
        self._options, self._stack, self._workforce, self._chaos = options, stack, workforce, chaos
        self._tell = tell
        self._storm: Storm | None = None
        self._until = 0.0

    def start(self, resources: Resources) -> None:
        """The first fault, or kill, comes after a pause."""
        now = time.monotonic()
        self._until = now + self._options.breaks_for
        if self._options.chaos:
            possible = faults(self._stack, self._workforce, resources, self._chaos)
            if wanted := self._options.faults:
                possible = {kind: fault for kind, fault in possible.items() if kind.value in wanted}
            if not possible:
                raise InputError(f"--fault {' '.join(wanted)}: of servers that are not ours nothing is broken")
            self._storm = Storm(possible, self._chaos, self._options.kill_every, self._tell)
            self._storm.start()
        else:
            self._chaos.start(now)

    def tick(self, resources: Resources) -> None:
        """Kill a worker if one is to be killed, and see that all goes on as it should; end when the time is over.
        Raises what went wrong with a fault itself, and ServerError for a worker that ended by itself."""
        if time.monotonic() > self._until:
            self._end()
        if self._storm is not None:
            self._storm.check()
        self._workforce.tick(resources.store)

    def stop(self) -> None:
        """Nothing more is broken; returns when what was is mended."""
        self._end()
        if self._storm is not None:
            self._storm.stop()

    @property
    def struck(self) -> Mapping[str, int]:
        """{kind of fault: how often}; without chaos none, only kills."""
        return {kind.value: count for kind, count in sorted(self._storm.struck.items())} if self._storm else {}

    def _end(self) -> None:
        self._chaos.stop()
        if self._storm is not None:
            self._storm.end()
