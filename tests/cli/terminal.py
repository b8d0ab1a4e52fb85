"""What a command prints on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Mapping

from tests.cli.command import recovery

WIDTH = 80
CUT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""Control sequences."""


def in_terminal(*arguments: str, env: Mapping[str, str], timeout: float = 120) -> str:
    """What a command prints on a terminal of 80 columns, with its errors."""
    master, slave = pty.openpty()
    read: list[bytes] = []

    def drain() -> None:
        try:
            while data := os.read(master, 65536):
                read.append(data)
        except OSError:  # the last of those that write has closed it
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    recovery(*arguments, env={**env, "COLUMNS": str(WIDTH)}, terminal=os.ttyname(slave), timeout=timeout)
    os.close(slave)
    reader.join(30)
    os.close(master)
    return b"".join(read).decode().replace("\r\n", "\n")


def too_wide(plain: str) -> list[str]:
    """Lines that are wider than the terminal; one word alone, such as an id that is copied, may be."""
    return [line for line in plain.splitlines() if len(line) > WIDTH and " " in line.strip()]
