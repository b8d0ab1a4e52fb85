"""Scanners: one for each kind of record with a deadline. Each finds overdue records, judges them and repairs them.

Celery beat nudges the scanners. With two beats, or none for an hour, nothing is lost. `scanner` contains the common
skeleton. `overdue_tasks`, `idle_processes` (Graph and Process scanner), `due_schedules` and `lost_workers` complete it.
"""

from recovery.scan.due_schedules import ScheduleScanner
from recovery.scan.idle_processes import GraphScanner, ProcessScanner
from recovery.scan.lost_workers import WorkerScanner, rescue
from recovery.scan.overdue_tasks import DecisionScanner
from recovery.scan.scanner import Scanner, ScanResult

__all__ = [
    "DecisionScanner",
    "GraphScanner",
    "ProcessScanner",
    "ScanResult",
    "Scanner",
    "ScheduleScanner",
    "WorkerScanner",
    "rescue",
]
