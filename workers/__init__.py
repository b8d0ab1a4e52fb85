"""The Celery side: `celery -A workers.app worker` serves the application that RECOVERY_APP names.

`app` is the Celery application, `tasks` its tasks (one per actor), `lifeline` tells that the worker lives, `consuming`
which queues it takes from and `polls` whether Redis answers it, `rescue` requeues what dead children had claimed,
`watch` keeps an eye on MongoDB's clock and on other workers, `stale` drops what nobody waits for, `nudges` answers
Celery beat and `notes` tells of it, `drain` ends a worker on SIGTERM. On the `board` stands what each slot runs
(`slots`); `hung` finds those that hang by it, which `freeing` and `killing` free. `patience` waits for servers at the
start, and `transport` mends kombu's. Thin: what is done stands in `recovery`.

Metrics of a prefork pool are added up over its processes through files; prometheus-client wants to know their
folder before it is first imported, which is here. Unless PROMETHEUS_MULTIPROC_DIR names one, it is a temporary
folder named by our pid, and those that killed workers left behind are removed.
"""

import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "recovery-metrics-"


def _metrics_folder() -> str:
    temporary = Path(tempfile.gettempdir())
    for left in temporary.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")


if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = _metrics_folder()
