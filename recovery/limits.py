"""Limits of what a user can give: times, numbers, lengths of texts, and the form of names.

MongoDB can store dates and numbers that Python can't read. Such a value would raise an error for every reader.
"""

from __future__ import annotations

import os

LONGEST = 10 * 366 * 86400
"""The longest time that can be given, in seconds: ten years. Nothing waits for a later moment."""

SHORTEST = 0.001
"""The shortest time, in seconds. MongoDB's dates are whole milliseconds, so a shorter time would be stored as 0."""

FAR_OFF = LONGEST + 86400
"""Seconds from now after which a deadline counts as impossible. It allows one day for clocks that differ."""

LONGEST_SILENCE = 3600
"""The longest heartbeat timeout of a worker, in seconds: one hour.

Whoever judges a worker by the deadline in its record does not know the worker's settings, so the bound is the same for
all workers.
"""

SILENCE_FAR_OFF = LONGEST_SILENCE + 60
"""Seconds from now after which a worker's deadline counts as past.

No worker writes such a deadline if its clock is right. One minute is for clocks that differ.
"""

MAX_NUMBER = 2**63 - 1
"""The largest integer that MongoDB can store."""

MAX_COUNT = 1_000_000_000
"""The largest count or rate that can be given."""

REASON_LENGTH = 500
"""Characters of an operator's reason that are stored."""

ERROR_LENGTH = 300
"""Characters of an error's text that are logged in a line."""

SHORT_NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,49}"
"""Regular expression for the name of an application or of a saved search."""

NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,99}"
"""Regular expression for the name of an actor or of a schedule."""

WAITS_FOR = 86_400.0
"""Seconds, up to a tenth more or less, until a queued task is examined again whose message is still in the queue.

Lost messages are found for a whole queue at once (`DecisionQueries.lost_pages`). This deadline catches what that check
misses.
"""


def available_cpus() -> int:
    """Return how many CPUs this process may use. `taskset` and cpusets may allow fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except AttributeError:  # not supported by this operating system
        return os.cpu_count() or 1
