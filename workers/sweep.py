"""The sweep that is deployed, in one of two ways.

- `python -m workers.sweep` is the worker that drives Spark, with the options and checks of `recovery worker`. It runs
  the sweeps that beat orders, and large operations.
- `spark-submit workers/sweep.py --repair` runs a single sweep in the Spark that spark-submit starts, with the options
  of `recovery sweep`.
"""

import os
import sys

from recovery.cli.entry import main
from recovery.cli.sweep_commands import SUBMITTED

WORKER = ["worker", "--celery-app", "workers.app", "--name", "sweep", "--queues", "spark"]
WORKER += ["--concurrency", "1", "--pool", "threads"]
"""Default options of the worker. Options on the command line follow these, and override them."""

if __name__ == "__main__":
    sys.argv[1:1] = ["sweep"] if SUBMITTED in os.environ else WORKER
    main()
