"""A sweep for spark-submit: `spark-submit workers/sweep.py --repair`, with the options of `recovery sweep`.

It runs in the Spark that spark-submit starts, by its options.
"""

import sys

from recovery.cli.entry import main

if __name__ == "__main__":
    sys.argv[1:1] = ["sweep"]
    main()
