"""Data directories of servers. A directory belongs to us, to one version, and to one running server at a time.

A marker file names the server and the major version that wrote the data. A directory that has content and no marker
belongs to somebody else. It is refused before a server can change anything in it.

The marker is also the lock. The server inherits the open file, so the lock lasts exactly as long as the server lives,
even if we are killed before the server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from recovery.errors import DataDirectoryError
from recovery.threads import poll

MARKER = "recovery-data.json"
# Seconds to wait for the lock. A server whose owner was just killed will be killed within this time; a longer lock has
# another user.
_LOCKED_TIMEOUT = 5.0


def make_private(folder: Path) -> None:
    """Create a folder that only this user can read. An existing folder keeps its mode.

    The mode protects the data on a shared machine, because the servers have no passwords. Raises DataDirectoryError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(f"{folder} can't be used: {error.strerror}") from None


@contextlib.contextmanager
def claimed(directory: Path, server: str, version: str) -> Iterator[int]:
    """Lock the directory, and create it if absent. Yield the file descriptor that the server must inherit."""
    make_private(directory)
    try:
        if not (directory / MARKER).exists() and any(directory.iterdir()):
            raise DataDirectoryError(
                f"{directory} is not empty and has no {MARKER}, so it is not ours: choose another directory"
            )
        descriptor = os.open(directory / MARKER, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DataDirectoryError(f"{directory} can't be used: {error.strerror}") from None
    try:
        _lock(descriptor, directory, server)
        _check(descriptor, directory, {"server": server, "version": version})
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path, server: str) -> None:
    if not poll(lambda: _try_lock(descriptor), _LOCKED_TIMEOUT, every=0.02):
        raise DataDirectoryError(
            f"{directory} is in use by another {server}: stop it, or choose another data directory"
        )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _check(descriptor: int, directory: Path, expected: dict[str, str]) -> None:
    """Check the marker, or write it if it is empty. It is empty if an earlier claim was interrupted."""
    text = os.pread(descriptor, 4096, 0)
    if not text:
        os.pwrite(descriptor, json.dumps(expected).encode() + b"\n", 0)
        os.fsync(descriptor)
        return
    try:
        marker = json.loads(text)
        owner = f"{marker['server']} {marker['version']}"
    except (ValueError, TypeError, KeyError):
        raise DataDirectoryError(f"{directory / MARKER} can't be read: it is not our marker") from None
    if marker != expected:
        raise DataDirectoryError(
            f"{directory} was written by {owner}, and this is {expected['server']} {expected['version']}: "
            "use that version, or another data directory"
        )
