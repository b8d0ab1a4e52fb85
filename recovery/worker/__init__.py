"""The Celery side: `celery -A recovery.worker.app worker` serves the application that RECOVERY_APP names.

`app` is the Celery application with its `celery_config`, `celery_tasks` its tasks (one per actor); `bootsteps` ties
the rest to a worker's start (`start_up`) and end (`drain`). `messages` come in, `slots` run them, the `lifeline` tells
that the worker lives; `scanning` and `operating` answer Celery `beat`, `control` obeys operators. Thin: what is done
stands in the rest of `recovery`.

Metrics of a prefork pool are added up over its processes through files (`counters`); prometheus-client wants to know
their folder before it is first imported, which is here. Unless PROMETHEUS_MULTIPROC_DIR names one, it is a temporary
folder of ours (`metrics_folder`).
"""

import sys

from recovery.metrics_folder import keep_metrics

_first = "prometheus_client" not in sys.modules
keep_metrics()

from recovery.worker import counters  # noqa: E402 - see above

if _first:  # else there are metrics already, which name their files in their own way
    counters.install()
