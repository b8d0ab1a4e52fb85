"""A server's data directory: ours, of one version, and used by one server at a time.

A marker file names the server and the major version that wrote the data. A directory that has something in
it and no marker is somebody else's and is refused, before a server could change anything in it.

The marker is also the lock. The server itself inherits the open file, so the lock lasts exactly as long as
the server lives, even when we are killed and it is not yet.
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
# A server whose owner was just killed is about to be killed too; more than this is another user.
_LOCKED_TIMEOUT = 5.0


def make_private(folder: Path) -> None:
    """Make a folder that only this user can read, unless it is there: then it keeps its mode. Because the servers ask
    nobody for a password, this is what protects their data on a shared machine. Raises DataDirectoryError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirectoryError(f"{folder} can't be used: {error.strerror}") from None


@contextlib.contextmanager
def claimed(directory: Path, server: str, version: str) -> Iterator[int]:
    """The directory, made if absent, locked; gives the descriptor that the server must inherit."""
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
    """Compare the marker, or write it: empty is what a claim leaves that was cut off."""
    text = os.pread(descriptor, 4096, 0)
    if not text:
        os.pwrite(descriptor, json.dumps(expected).encode() + b"\n", 0)
        os.fsync(descriptor)
        return
    try:
        found = json.loads(text)
        theirs = f"{found['server']} {found['version']}"
    except (ValueError, TypeError, KeyError):
        raise DataDirectoryError(f"{directory / MARKER} can't be read: it is not a marker of ours") from None
    if found != expected:
        raise DataDirectoryError(
            f"{directory} was written by {theirs}, and this is {expected['server']} {expected['version']}: "
            "use that version, or another data directory"
        )
