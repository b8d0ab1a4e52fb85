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
"""Seconds between two notes of a scanner: those of all are one small write."""


class ScanNotes:
    """Notes what one worker's scanners did, seldom. Not safe for threads: scanners run in one."""

    def __init__(self, scanners: Scanners, worker: str) -> None:
        self._scanners, self._worker = scanners, worker
        self._waiting: dict[str, ScannerRun] = {}
        self._noted_at: dict[str, float] = {}

    def add(self, *results: ScanResult) -> None:
        """Take note of runs; written together, those whose last note is not fresh. Does not raise for a database that
        is away."""
        now = time.monotonic()
        for result in results:
            self._take(result)
        due = [
            self._waiting[result.scanner]
            for result in results
            if now - self._noted_at.get(result.scanner, float("-inf")) >= NOTE_EVERY
        ]
        if not due:
            return
        try:
            self._scanners.note(*due)
        except StoreError as error:
            names = ", ".join(run.id for run in due)
            log.warning("%s scan not noted (%s): `recovery doctor` takes it for not done", names, error)
            return
        for run in due:
            del self._waiting[run.id]
            self._noted_at[run.id] = now

    def _take(self, result: ScanResult) -> None:
        before = self._waiting.get(result.scanner) or ScannerRun(id=result.scanner)
        self._waiting[result.scanner] = ScannerRun(
            id=result.scanner,
            seconds=result.seconds,
            looked_at=before.looked_at + result.looked_at,
            repaired=before.repaired + result.repaired.total(),
            worker=self._worker,
            error=result.error,
        )
