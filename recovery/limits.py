"""How much a user can ask for: times, numbers, the length of texts, and the form of names.

MongoDB keeps dates and numbers that Python can't read: one such would be an error for everybody who reads it.
"""

from __future__ import annotations

import os

LONGEST = 10 * 366 * 86400
"""Ten years, in seconds: the longest time that anything can be given. What is further off is not waited for."""

SHORTEST = 0.001
"""The shortest time, in seconds: MongoDB's dates are whole milliseconds, so a shorter one is none at all."""

FAR_OFF = LONGEST + 86400
"""A deadline that is further off, in seconds, is as good as none. A day over, since clocks differ."""

LONGEST_SILENCE = 3600
"""An hour, in seconds: the longest heartbeat timeout that a worker can be given. Whoever judges a worker by the
deadline in its record does not know its settings, and so needs a bound that holds for all of them."""

SILENCE_FAR_OFF = LONGEST_SILENCE + 60
"""A worker's deadline that is further off, in seconds, is none that a worker wrote by this clock, and as good as past.
A minute over, since clocks differ."""

MAX_NUMBER = 2**63 - 1
"""The largest whole number that MongoDB has."""

MAX_COUNT = 1_000_000_000
"""The largest count and rate."""

REASON_LENGTH = 500
"""Characters that are kept of an operator's reason."""

ERROR_LENGTH = 300
"""Characters of an error in a line of the log."""

SHORT_NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,49}"
"""What the name of an application or of a saved search may be, as a regular expression."""

NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,99}"
"""What the name of an actor or of a schedule may be, as a regular expression."""

WAITS_FOR = 86_400.0
"""Seconds after which a queued task is looked at again whose message is still to come, a tenth more or less: a day.
That a message is lost is found for all of a queue at once (`DecisionQueries.lost_pages`), so this is the net below it.
A million that wait cost 12 updates a second."""


def available_cpus() -> int:
    """Return how many CPUs this process may use, which may be fewer than the machine has (`taskset`, cpusets)."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except AttributeError:  # not this system
        return os.cpu_count() or 1
