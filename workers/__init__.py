"""The Celery side: `celery -A workers.app worker` serves the application that RECOVERY_APP names.

`app` is the Celery application, `tasks` its tasks (one per actor), `lifeline` tells that the worker lives and
what became of its children, `nudges` answers Celery beat, `drain` ends a worker on SIGTERM. Thin: what is done
stands in `recovery`.

Metrics of a prefork pool are added up over its processes through files; prometheus-client wants to know their
folder before it is first imported, which is here.
"""

import os
import tempfile

if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="recovery-metrics-")
