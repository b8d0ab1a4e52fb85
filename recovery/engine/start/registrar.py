"""Registers what a program starts, in a thread of its own, for as many at once as were started meanwhile.

A start is acknowledged before that, so nothing that goes wrong here is raised. What could not be registered for a
database that was away is tried again for as long as the program lives, over connections of its own: one that was cut
off may have connections that are silent for ever. Others register it after its idle timeout, if the program is gone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Any

from recovery.engine.resources import Resources
from recovery.engine.start.registering import register_all
from recovery.errors import RecordInvalid, RecordTooLarge, StoreDenied
from recovery.log_lines import Seldom
from recovery.records import Process
from recovery.records.ids import new_pass
from recovery.store import PORTION_BYTES, Store, portions
from recovery.store.views.overview import time_limit
from recovery.threads import Background

log = logging.getLogger(__name__)

TOGETHER = 1000
"""Processes that are registered at once."""
GATHERED_FOR = 0.015
"""Seconds that what is started on and on waits for more of it: some dozens cost little more than one to register, and
each round takes the processor from the starts. Whoever starts once in a while waits for nobody."""
AT_EXIT = 5.0
"""Seconds that a program waits at its end until all that it started is registered; mostly it is by then."""
TRY = 2.0
"""Seconds that one try takes at most: a database that is slow registers a thousand in a tenth of that."""
PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between two tries; each is twice as long as the one before."""
KEPT = 10_000
"""Processes that are tried again, at most: others register the rest after their idle timeouts."""


class Registrar:
    """Registers in a thread of its own what one process of a program starts. Any thread may add."""

    def __init__(self, resources: Resources) -> None:
        self._resources, self._pid = resources, os.getpid()
        self._changed, self._registering = threading.Condition(), threading.Lock()
        self._waiting: list[Process] = []
        self._failed: list[Process] = []
        """Those of them that were tried, and are to be tried again."""
        self._passes: dict[str, str] = {}
        """{process: the pass that it was tried under}, of those."""
        self._pause, self._try_at = PAUSE, 0.0
        self._said = Seldom(log)
        self._again: Resources | None = None
        """With the connections of second tries."""
        self._hurry = threading.Event()
        self._background = Background(self._register_always, "registrar")
        self._at_exit: Any = None

    def add(self, processes: Sequence[Process]) -> None:
        """Have these registered soon. They are saved. Does not raise."""
        with self._changed:
            self._waiting += processes
            self._changed.notify_all()
        if not self._start_thread():
            self.flush()

    def flush(self) -> None:
        """Register in the calling thread what was added. When it returns, everything added before is registered, by
        whichever thread, as far as the database accepted it. Does not raise."""
        with self._registering:
            with self._changed:
                processes, self._waiting = self._waiting, []
                again, self._failed = self._failed, []
            self._passes |= dict.fromkeys((one.id for one in processes), new_pass())
            failed = [one for group in by_size(processes) for one in self._try(group)]
            if again and not failed:
                failed += [one for group in by_size(again) for one in self._try(group, again=True)]
            else:
                failed += again
            with self._changed:
                self._note_failed(failed)
                self._changed.notify_all()

    def _try(self, group: Sequence[Process], *, again: bool = False) -> Sequence[Process]:
        """Those that are to be tried again: after whatever may be another time, such as names that can't be looked up,
        a certificate that can't be read, or a system without threads. Nothing may end the thread that registers."""
        try:
            with time_limit(TRY):
                register_all(self._connected_anew() if again else self._resources, group, self._passes, again=again)
        except (StoreDenied, RecordInvalid, RecordTooLarge) as error:
            told = "%d processes are saved but not registered (%s), first %s: each is within its idle timeout"
            log.warning(told, len(group), error, group[0].id)
        except Exception as error:
            log.debug("not registered", exc_info=True)
            told = "%d processes are saved but not yet registered (%s: %s), first %s: tried again"
            self._said.warning(told, len(group), type(error).__name__, error, group[0].id)
            return group
        return ()

    def _connected_anew(self) -> Resources:
        if self._again is None:
            self._again = replace(self._resources, store=Store(self._resources.settings, within=TRY))
        return self._again

    def _note_failed(self, failed: Sequence[Process]) -> None:
        self._failed = [*failed, *self._failed][:KEPT]
        self._passes = {one.id: self._passes[one.id] for one in self._failed}
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if failed else PAUSE
        self._try_at = time.monotonic() + self._pause

    def wait(self, seconds: float) -> bool:
        """Wait until the thread has registered everything that was added. Return whether it has, in time."""
        if os.getpid() != self._pid:  # a fork, at its end: what was added is its parent's to register
            return True
        self._hurry.set()
        with self._changed:
            done = self._changed.wait_for(
                lambda: not (self._waiting or self._failed or self._registering.locked()), seconds
            )
        self._hurry.clear()
        return done

    def _start_thread(self) -> bool:
        if not self._background.begin():
            return False
        if self._at_exit is None:
            # Not `atexit`, which a process of multiprocessing does not ask as it ends.
            self._at_exit = Finalize(None, self.wait, args=(AT_EXIT,), exitpriority=0)
        return True

    def _register_always(self) -> None:
        more_came = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting), self._until_again())
                gather = more_came and len(self._waiting) < TOGETHER
                nothing = not self._waiting and (not self._failed or time.monotonic() < self._try_at)
            if nothing:
                continue
            if gather:
                self._hurry.wait(GATHERED_FOR)
            self.flush()
            more_came = bool(self._waiting)

    def _until_again(self) -> float | None:
        return max(0.0, self._try_at - time.monotonic()) if self._failed else None


def by_size(processes: Sequence[Process]) -> Iterator[list[Process]]:
    """These, as many at a time as are written at once: their arguments may be large."""
    by_id = {one.id: one for one in processes}
    for ids in portions({one.id: len(one.args) for one in processes}, PORTION_BYTES, TOGETHER):
        yield [by_id[key] for key in ids]
