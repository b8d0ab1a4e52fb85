"""The scanners, one per record with a deadline, all of one skeleton: find → judge → act → named result.

Celery beat nudges them; two beats, or none for an hour, lose nothing. `scanner` is the skeleton, `overdue_tasks`,
`idle_processes` (Graph and Process scanner), `due_schedules` and `lost_workers` fill it in.
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
