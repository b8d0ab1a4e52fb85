"""The Celery worker: `celery -A recovery.worker.app worker` serves the application that RECOVERY_APP names.

- `app` is the Celery application, with its `celery_config`; `celery_tasks` holds its tasks, one per actor.
- `bootsteps` ties the other modules to a worker's start (`start_up`) and end (`drain`).
- `messages` come in, `slots` run them, and the `lifeline` shows that the worker lives.
- `scanning` and `operating` answer the nudges of Celery `beat`; `control` obeys operators.

This package is thin: the work itself is done in the rest of `recovery`.

The processes of a prefork pool count metrics in files, which are added up (`counters`). prometheus-client must know the
folder of these files before it is first imported, so the folder is set here. Unless PROMETHEUS_MULTIPROC_DIR names one,
it is a temporary folder of ours (`metrics_folder`).
"""

import sys

from recovery.metrics_folder import keep_metrics

_is_not_imported = "prometheus_client" not in sys.modules
keep_metrics()

from recovery.worker import counters  # noqa: E402 - see above

if _is_not_imported:  # otherwise metrics exist already, whose files are named by prometheus-client
    counters.install()
