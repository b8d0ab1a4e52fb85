"""What is broken in a demo, and until when: workers that are killed or, with chaos, faults of every kind.

Once its time is over nothing more is broken, and what was is mended; then processes have the rest of their time to
come to their ends, however slow the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from recovery.demo.chaos import Chaos
from recovery.demo.faults import faults
from recovery.demo.options import Options
from recovery.demo.storm import Storm
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.errors import InputError
from recovery.stack import Stack


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
