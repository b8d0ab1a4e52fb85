"""The folder with the metric files of a worker's processes: create it in the temporary folder, and hold it with a lock.

Its name has the worker's pid. A worker that starts removes the folders that killed workers left behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from recovery.errors import SettingsError
from recovery.settings import load

MULTIPROC_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder in which prometheus-client keeps the metric files of several processes."""
FOLDER_PREFIX = "recovery-metrics-"
"""Prefix of the folders that workers create for themselves. The worker's pid follows.

By the pid, the next worker recognizes the folder of a killed worker.
"""
OFF = 0
"""Value of the setting `metrics_port` for a worker that serves no metrics."""


def keep_metrics() -> None:
    """Create a metrics folder and name it in the environment.

    Does nothing if the environment already names a folder, if no metrics are served, or if no folder can be created.
    """
    if MULTIPROC_DIR not in os.environ and _are_served():
        with suppress(OSError):  # the server of the metrics reports the reason, from `why_none`
            os.environ[MULTIPROC_DIR] = _create_folder()


def why_none() -> str:
    """Return why the environment names no folder."""
    try:
        tempfile.gettempdir()
    except OSError:
        return "no temporary folder can be written to"
    return f"no folder could be made in {tempfile.gettempdir()}"


def _are_served() -> bool:
    try:
        return load().metrics_port != OFF
    except SettingsError:  # the worker reports the error when it starts, and ends
        return False


def _create_folder() -> str:
    temporary = Path(tempfile.gettempdir())
    for folder in temporary.glob(f"{FOLDER_PREFIX}*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        # A folder with our own pid is of an earlier process: the main process of a container always has pid 1.
        if pid.isdigit() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists()):
            _remove_unless_held(folder)
    while True:
        created = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
        hold(created)
        if created.exists():  # otherwise another worker removed it before it was locked
            return str(created)


def _remove_unless_held(folder: Path) -> None:
    """Remove a folder whose worker is gone.

    The worker may live in another container that shares the temporary folder, where its pid is not visible; then it
    holds the lock. Other users may put something else under this name into a temporary folder. It is left alone, and
    opened without waiting, because opening a FIFO would block.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a removed folder again. Raise OSError if that fails or the existing folder belongs to another user."""
    try:
        folder.mkdir(0o700)
        hold(folder)
    except FileExistsError:
        existing = folder.lstat()
        # Any user may create a folder of this name in a temporary folder.
        if folder.name.startswith(FOLDER_PREFIX) and not (
            stat.S_ISDIR(existing.st_mode) and existing.st_uid == os.geteuid()
        ):
            raise PermissionError(0, "it belongs to another user") from None


def hold(folder: Path) -> None:
    """Lock a folder while this process, or a process that it forks, lives. Other workers then do not remove it."""
    # The descriptor stays open, because closing it would release the lock.
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
