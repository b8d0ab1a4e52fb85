"""Notes of the scanners' runs in MongoDB: by them `recovery doctor` tells whether a beat nudges and somebody scans."""

from __future__ import annotations

import logging
import time

from recovery.errors import StoreError
from recovery.records import ScannerRun
from recovery.scan import ScanResult
from recovery.store.views.scanners import Scanners

log = logging.getLogger(__name__)

NOTE_EVERY = 5.0
"""Seconds between two notes of a scanner: one small write where the scans in between ask some twenty queries."""


class ScanNotes:
    """Notes what one worker's scanners did, seldom. Not safe for threads: scanners run in one."""

    def __init__(self, scanners: Scanners, worker: str) -> None:
        self._scanners, self._worker = scanners, worker
        self._waiting: dict[str, ScannerRun] = {}
        self._noted_at: dict[str, float] = {}

    def add(self, result: ScanResult) -> None:
        """Take note of a run; written unless the last note is fresh. Does not raise for a database that is away."""
        before = self._waiting.get(result.scanner) or ScannerRun(id=result.scanner)
        run = ScannerRun(
            id=result.scanner,
            seconds=result.seconds,
            looked_at=before.looked_at + result.looked_at,
            repaired=before.repaired + result.repaired.total(),
            worker=self._worker,
            error=result.error,
        )
        self._waiting[run.id] = run
        now = time.monotonic()
        if now - self._noted_at.get(run.id, float("-inf")) < NOTE_EVERY:
            return
        try:
            self._scanners.note(run)
        except StoreError as error:
            log.warning("%s scan not noted (%s): `recovery doctor` takes it for not done", run.id, error)
            return
        del self._waiting[run.id]
        self._noted_at[run.id] = now
