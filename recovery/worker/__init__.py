"""The Celery side: `celery -A recovery.worker.app worker` serves the application that RECOVERY_APP names.

`app` is the Celery application with its `config`, `tasks` its tasks (one per actor); `bootsteps` ties the rest to a
worker's start and end. `messages` come in, `slots` run them, the `lifeline` tells that the worker lives; `scanning`
answers Celery beat and `scan_notes` tells of it, `control` obeys operators, `drain` ends a worker on SIGTERM,
`start_up` waits for servers at the start. Beat's own are `schedule` and `sending`. Thin: what is done stands in the
rest of `recovery`.

Metrics of a prefork pool are added up over its processes through files; prometheus-client wants to know their
folder before it is first imported, which is here. Unless PROMETHEUS_MULTIPROC_DIR names one, it is a temporary
folder of ours (`counting`).
"""

import sys

from recovery.worker.metrics_folder import keep_metrics

_first = "prometheus_client" not in sys.modules
keep_metrics()

from recovery.worker.counting import counters as values

if _first:  # else there are metrics already, which name their files in their own way
    values.install()
