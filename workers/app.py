"""The worker that is deployed: `python -m workers.app`, with the options and the checks of `recovery worker`.

`app` is its Celery application, also for `celery -A workers.app …`. What a deployment wants to have in each of its
worker processes, such as handlers of Celery's signals, goes here.
"""

import sys

if __name__ == "__main__":
    from recovery.cli.entry import main

    sys.argv[1:1] = ["worker", "--celery-app", "workers.app"]
    main()
else:
    from recovery.worker.app import app

    __all__ = ["app"]
