"""Faults at the named steps of the store and the queue. For tests only: the product has no hook for it.

`installed()` wraps every public method of the store's collections, and the one call by which the queue talks to
Redis. A wrapped step does what it always does, unless the thread that takes it is `under` a `Plan`: that counts its
steps and lets one of them fail before or after it was done, or done by half, end its process, or stop there
(`Course`) while the test lets others act. Half of a step are the first writes of what it sends as one (`halves`).

A plan is given fault by fault or drawn from a seed; `Plan.told` says what befell whom, to be shown with a failure.
"""

from tests.faults.course import Course
from tests.faults.layer import installed, reach, under
from tests.faults.plan import Died, Fault, Kind, Plan
from tests.faults.threads import threads_held

__all__ = ["Course", "Died", "Fault", "Kind", "Plan", "installed", "reach", "threads_held", "under"]
