"""Ranges of processes gone through in key order, for whoever has to look at all of them.

The scanners see what is overdue; a survey sees everything, also what lost its deadline or never had one, and so tells
that nothing is forgotten. `plan` cuts the process ids into ranges that are even in volume. `read` goes through a range
and passes over what is plainly at rest, `outline` runs the scanners' rules on the little that was read of the others,
and `examine` runs them again on the suspects, read whole. A process's records are neighbours in every collection, so
ranges need nothing of each other, wherever each is surveyed.
"""

from recovery.survey.examine import Look, without_collector, wrong_in
from recovery.survey.read import RangeCounts, without_process

__all__ = ["Look", "RangeCounts", "without_collector", "without_process", "wrong_in"]
