"""What a command prints on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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


DISCARD = "\x15\r"
"""Keys that give up the line that was typed, and have a shell prompt anew."""


class Typing:
    """A program on a terminal, for which a test types."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> None:
        self._master, slave = pty.openpty()
        # In a session whose terminal it is: fish runs in no other.
        command = ("setsid", "--ctty", *command)
        self._process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=slave, stdout=slave, stderr=slave, close_fds=True
        )
        os.close(slave)
        self._said = b""

    def __enter__(self) -> Typing:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def drain(self) -> None:
        """Read what it has said by now, so that it can say more."""
        while select.select([self._master], [], [], 0)[0]:
            self._said += os.read(self._master, 65536)

    def wait_for(self, text: str, timeout: float = 30) -> None:
        """Read until it says this, from where the last such wait ended."""
        until = time.monotonic() + timeout
        while text.encode() not in self._said:
            left = until - time.monotonic()
            assert left > 0 and select.select([self._master], [], [], left)[0], (text, self._said)
            self._said += os.read(self._master, 65536)
        self._said = self._said.partition(text.encode())[2]


def too_wide(plain: str) -> list[str]:
    """Lines that are wider than the terminal; one word alone, such as an id, or a command in backticks, may be: they
    are copied."""
    wide = [line.strip() for line in plain.splitlines() if len(line) > WIDTH]
    return [line for line in wide if " " in re.sub("`[^`]+`", "`", line)]
