"""The folder that a worker's processes keep their counts in: made in the temporary folder, and held by a lock.

Its name has the worker's pid. A worker that starts removes folders that killed workers left behind.
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
"""Environment variable: the folder in which prometheus-client keeps files of what many processes count."""
FOLDER_PREFIX = "recovery-metrics-"
"""Folders of this name are made by workers, for themselves. After it comes the pid: by that the next worker knows
what one that was killed has left."""
OFF = 0
"""The setting `metrics_port` of a worker whose metrics nobody asks for."""


def keep_metrics() -> None:
    """Name a folder in the environment, unless one is named there, or no metrics are served, or none can be made."""
    if MULTIPROC_DIR not in os.environ and _are_served():
        with suppress(OSError):  # `why_none` has the reason for whoever serves them
            os.environ[MULTIPROC_DIR] = _made()


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
    except SettingsError:  # the worker will say so, and end
        return False


def _made() -> str:
    temporary = Path(tempfile.gettempdir())
    for left in temporary.glob(f"{FOLDER_PREFIX}*"):
        pid = left.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        # Our own number, before we made one, was another's: the main process of a container is always 1.
        if pid.isdigit() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists()):
            _remove_unless_held(left)
    while True:
        made = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
        hold(made)
        if made.exists():  # else another one had taken it for left behind, before it was held
            return str(made)


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


def make_folder(folder: Path) -> None:
    """Make a folder that was removed anew. Raises OSError."""
    try:
        folder.mkdir(0o700)
        hold(folder)
    except FileExistsError:
        found = folder.lstat()
        # Anybody may make a folder of this name in a temporary folder.
        if folder.name.startswith(FOLDER_PREFIX) and not (stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()):
            raise PermissionError(0, "it belongs to somebody else") from None


def hold(folder: Path) -> None:
    """Lock a folder for as long as this process, or one that it forks, lives: other workers leave it alone."""
    # Not closed: the lock would end with it.
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
