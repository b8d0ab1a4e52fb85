"""What the embedded servers have in common: start, be ready, stop, be killed, start again.

A server keeps its port and its directory over any number of starts. `start` returns only when the server does
what it is there for; a server that ends or is silent raises ServerUnavailable with the end of its log.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence
from pathlib import Path

from recovery.errors import ServerUnavailable
from recovery.stack.child import Child
from recovery.stack.datadir import claimed
from recovery.stack.ports import HOST, free_port, require_free

# Recovery after a kill reads the journal: seconds for the largest one. A minute is a server that hangs.
START_TIMEOUT = 60.0
# MongoDB writes a checkpoint when it stops.
STOP_TIMEOUT = 20.0


class Server(abc.ABC):
    """One server process with its port, directory and log."""

    name: str

    def __init__(self, directory: Path, log: Path, port: int | None = None) -> None:
        self.directory, self.log = directory.absolute(), log.absolute()
        self.port = port or free_port()
        self.child: Child | None = None

    def start(self) -> None:
        """Start on the same port and directory, and wait until ready. Does nothing when it runs."""
        if self.running:
            return
        command = self._command()
        require_free(self.port, self.name)
        with claimed(self.directory, *self._written_by()) as lock:
            self.child = Child(self.name, command, self.log, cwd=self.directory, keep_open=[lock])
        try:
            self._wait_ready(self.child)
        except BaseException:
            self.child.kill_group()
            raise

    def stop(self) -> None:
        """End it in order. Does nothing when it does not run."""
        if self.child is not None:
            self.child.stop(STOP_TIMEOUT)

    def kill(self) -> None:
        """SIGKILL; `start` recovers what it had acknowledged."""
        if self.child is not None:
            self.child.kill_group()

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nobody answers."""
        if self.child is not None:
            self.child.freeze()

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was."""
        if self.child is not None:
            self.child.thaw()

    @property
    def running(self) -> bool:
        """Whether its process lives, frozen or not."""
        return self.child is not None and self.child.running

    @property
    def frozen(self) -> bool:
        """Whether its process stands still since `freeze`."""
        return self.child is not None and self.child.frozen

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.port}"

    @abc.abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The program and its options; its working directory is `directory`."""

    @abc.abstractmethod
    def _written_by(self) -> tuple[str, str]:
        """The server's name and major version, as the directory's marker has them."""

    @abc.abstractmethod
    def _ready(self) -> bool:
        """One look at whether it can be used now; does what is left to do for that."""

    def _readable(self, lines: list[str]) -> list[str]:
        """The log lines that a person should see, of the last few hundred."""
        return lines[-20:]

    def _wait_ready(self, child: Child) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready():
            if child.wait(0.02):
                raise self._unavailable(child, f"ended with code {child.exit_code} while starting")
            if time.monotonic() > deadline:
                raise self._unavailable(child, f"is not ready {START_TIMEOUT:g} s after its start")

    def _unavailable(self, child: Child, what: str) -> ServerUnavailable:
        lines = "\n  ".join(self._readable(child.last_lines(500)))
        return ServerUnavailable(f"{self.name} on {self.address} {what}. The end of {self.log}:\n  {lines}")
