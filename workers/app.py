"""The worker that is deployed: `python -m workers.app`, with the options and checks of `recovery worker`.

`app` is its Celery application, also for `celery -A workers.app …`. Put here what a deployment needs in each of its
worker processes, such as handlers for Celery's signals.
"""

import sys

if __name__ == "__main__":
    from recovery.cli.entry import main

    sys.argv[1:1] = ["worker", "--celery-app", "workers.app"]
    main()
else:
    from recovery.worker.app import app

    __all__ = ["app"]
