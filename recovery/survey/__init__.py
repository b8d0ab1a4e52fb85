"""Survey: examine ranges of processes in key order.

Scanners see overdue records only. A survey sees all records, including those without a deadline, and so proves that
nothing is forgotten. `plan` cuts the process ids into ranges of even volume. `read` reads a range and skips processes
that are plainly at rest. `outline` runs the scanners' rules on outlines of the others, and `examine` runs them again on
suspects that are read completely. Ranges are independent of each other, because the records of a process are neighbours
in every collection.
"""

from recovery.survey.examine import Look, without_collector, wrong_in
from recovery.survey.read import RangeCounts, without_process

__all__ = ["Look", "RangeCounts", "without_collector", "without_process", "wrong_in"]
