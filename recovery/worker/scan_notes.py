"""Notes of the scanners' runs in MongoDB: by them `recovery doctor` tells whether a beat nudges and somebody scans, and
workers see that somebody does."""

from __future__ import annotations

import logging
import math
import time

from recovery.errors import StoreError
from recovery.records import ScannerRun
from recovery.scan import ScanResult
from recovery.store.views.scanners import Scanners

log = logging.getLogger(__name__)

TELL_EVERY = 1.5
"""Seconds between two notes: those of all scanners are one small write. With a nudge each second, a cluster that scans
has a note that is no older than two seconds."""


class ScanNotes:
    """Notes what one worker's scanners did, now and then. Not safe for threads: scanners run in one."""

    def __init__(self, scanners: Scanners, worker: str) -> None:
        self._scanners, self._worker = scanners, worker
        self._waiting: dict[str, ScannerRun] = {}
        self._told_at = -math.inf
        self.by_beat = False
        """Whether a beat's nudge was taken since the last note. Set by another thread."""

    def take(self, result: ScanResult) -> None:
        """Take note of a run, which is yet to be told."""
        before = self._waiting.get(result.scanner) or ScannerRun(id=result.scanner)
        self._waiting[result.scanner] = ScannerRun(
            id=result.scanner,
            seconds=result.seconds,
            looked_at=before.looked_at + result.looked_at,
            repaired=before.repaired + result.repaired.total(),
            worker=self._worker,
            error=result.error,
        )

    def tell(self) -> None:
        """Write what waits, if the last note is not fresh. Does not raise for a database that is away."""
        now = time.monotonic()
        if not self._waiting or now - self._told_at < TELL_EVERY:
            return
        by_beat, self.by_beat = self.by_beat, False
        try:
            self._scanners.note(*self._waiting.values(), by_beat=by_beat)
        except StoreError as error:
            self.by_beat = self.by_beat or by_beat
            names = ", ".join(self._waiting)
            log.warning("%s scan not noted (%s): `recovery doctor` takes it for not done", names, error)
            return
        self._waiting.clear()
        self._told_at = now
