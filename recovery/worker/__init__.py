"""The Celery side: `celery -A recovery.worker.app worker` serves the application that RECOVERY_APP names.

`app` is the Celery application with its `config`, `tasks` its tasks (one per actor); `bootsteps` ties the rest to a
worker's start and end. `messages` come in, `slots` run them, the `lifeline` tells that the worker lives; `scanning`
answers Celery beat and `scan_notes` tells of it, `control` obeys operators, `drain` ends a worker on SIGTERM,
`start_up` waits for servers at the start. Beat's own are `schedule` and `sending`. Thin: what is done stands in the
rest of `recovery`.

Metrics of a prefork pool are added up over its processes through files; prometheus-client wants to know their
folder before it is first imported, which is here. Unless PROMETHEUS_MULTIPROC_DIR names one, it is a temporary
folder named by our pid, held by a lock, and those that killed workers left behind are removed.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from billiard.process import current_process

_PREFIX = "recovery-metrics-"


def _metrics_folder() -> str:
    temporary = Path(tempfile.gettempdir())
    for left in temporary.glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        # Our own number, before we made one, was another's: the main process of a container is always 1.
        if pid.isdigit() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists()):
            _remove_unless_held(left)
    while True:
        made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        # Held as long as this process, or one that it forks, lives. Not closed: the lock would end with it.
        fcntl.flock(os.open(made, os.O_RDONLY), fcntl.LOCK_EX)
        if Path(made).exists():  # else another one had taken it for left behind, before it was held
            return made


def _remove_unless_held(left: Path) -> None:
    """Remove a folder whose worker is gone. One in another container that has this folder in common can't be seen, and
    lives perhaps. Anybody can put something else under this name into a temporary folder: it is left alone, and not
    waited for, as opening a FIFO would be."""
    with suppress(OSError):
        folder = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(folder)


def keep_metrics() -> None:
    """Name a folder for them, unless the environment does."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = _metrics_folder()


def _who_counts() -> str:
    """Names a process's files: by its pid, or in a pool by the pool's and its place in it. Whoever takes the place of
    one that died goes on with what that had counted, so there are no more files to be read than places."""
    process = current_process()
    place = getattr(process, "index", None)
    # An actor may fork, and what it forks has inherited the place.
    if place is None or os.getppid() != process._parent_pid:
        return str(os.getpid())
    return f"{process._parent_pid}-{place}"


_first = "prometheus_client" not in sys.modules
keep_metrics()

from prometheus_client import values  # noqa: E402 - see above

if _first:  # else there are metrics already, which name their files in their own way
    values.ValueClass = values.MultiProcessValue(_who_counts)  # type: ignore[no-untyped-call]
