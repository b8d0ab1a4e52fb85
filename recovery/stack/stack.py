"""A whole cluster on one machine: MongoDB, Valkey, workers and beats, started and stopped together.

    with Stack(Path(".recovery")) as stack:
        worker = stack.start_worker("shop.orders:app")

When the block is left, or this process ends in any way, all processes of the stack end. Everything that the servers
acknowledged is there when a stack is started from the same directory.

Limits: for development, the demo and tests. A server whose address is given is neither started nor stopped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from recovery.errors import InputError
from recovery.stack.child import ChildProcess, stop_all
from recovery.stack.datadir import make_private
from recovery.stack.replica_set import ReplicaSet
from recovery.stack.server_process import ServerProcess
from recovery.stack.servers import Mongod, Valkey

# Seconds. More than the setting shutdown_grace (10 s), so that a worker can give its tasks back before it is killed.
WORKERS_STOP_TIMEOUT = 15.0


class Stack:
    """The servers of one data directory, with the workers and beats that use them."""

    def __init__(
        self,
        data_dir: Path | str,
        *,
        mongo_port: int | None = None,
        redis_port: int | None = None,
        mongo_uri: str | None = None,
        broker_url: str | None = None,
        mongo_cache_gb: float = 0.5,
        mongo_nodes: int = 1,
    ) -> None:
        """Create a stack. Nothing is started yet.

        Args:
            data_dir: Folder for the servers' data and all logs.
            mongo_port: Port of MongoDB. By default a free one.
            redis_port: Port of Valkey. By default a free one.
            mongo_uri: Address of an existing MongoDB. If given, none is started.
            broker_url: Address of an existing Valkey or Redis. If given, none is started.
            mongo_cache_gb: Size of MongoDB's cache in gigabytes.
            mongo_nodes: Number of mongods. With more than 1 the stack has a `replica_set` instead of `mongod`.
        """
        self.data_dir = Path(data_dir).absolute()
        self.mongod: Mongod | None = None
        self.replica_set: ReplicaSet | None = None
        self.valkey: Valkey | None = None
        if mongo_uri is None and mongo_nodes > 1:
            self.replica_set = ReplicaSet(self.data_dir, self.log, mongo_nodes)
            mongo_uri = self.replica_set.uri
        elif mongo_uri is None:
            self.mongod = Mongod(self.data_dir / "mongod", self.log("mongod"), mongo_port, mongo_cache_gb)
            mongo_uri = self.mongod.uri
        if broker_url is None:
            self.valkey = Valkey(self.data_dir / "valkey", self.log("valkey"), redis_port)
            broker_url = self.valkey.url
        self.mongo_uri, self.broker_url = mongo_uri, broker_url
        self.workers: list[ChildProcess] = []
        self._beats: list[ChildProcess] = []
        self._started = 0

    def start(self) -> None:
        """Start our servers in parallel. If one fails, all are stopped."""
        if not self._servers():
            return
        make_private(self.data_dir)
        try:
            with ThreadPoolExecutor() as pool:
                for future in [pool.submit(server.start) for server in self._servers()]:
                    future.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything that was started: first workers and beats, then the servers."""
        self.stop_workers()
        stop_servers = [server.stop for server in self._servers()]
        with ThreadPoolExecutor() as pool:
            for future in [pool.submit(stop) for stop in stop_servers]:
                future.result()

    def start_worker(
        self,
        app: str,
        *,
        concurrency: int = 2,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        pool: str | None = None,
        log_level: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a worker, and return before it is ready. Variables in `env` override `environment()`."""
        self._started += 1
        name = name or f"worker-{self._started}"
        options = ["--concurrency", str(concurrency), "--name", name]
        if pool:
            options += ["--pool", pool]
        if log_level:
            options += ["--loglevel", log_level]
        if queues:
            options += ["--queues", ",".join(queues)]
        worker = self._run(name, ["worker", "--app", app, *options], env)
        self.workers.append(worker)
        return worker

    def start_beat(self, app: str, *, env: Mapping[str, str] | None = None) -> ChildProcess:
        """Start a beat. Any number of beats may run."""
        self._started += 1
        beat = self._run(f"beat-{self._started}", ["beat", "--app", app], env)
        self._beats.append(beat)
        return beat

    def stop_workers(self) -> None:
        """Stop all workers and beats of this stack. The servers continue."""
        stop_all(self._forget_children(), WORKERS_STOP_TIMEOUT)

    def kill_workers(self) -> None:
        """Send SIGKILL to all workers and beats of this stack, and to their pools. The servers continue."""
        for child in self._forget_children():
            child.kill_group()

    def _forget_children(self) -> list[ChildProcess]:
        children = [*self._beats, *self.workers]
        self._beats.clear()
        self.workers.clear()
        return children

    def environment(self) -> dict[str, str]:
        """Return the servers' addresses as environment variables for a process that uses them."""
        return {"RECOVERY_MONGO_URI": self.mongo_uri, "RECOVERY_BROKER_URL": self.broker_url}

    def log(self, name: str) -> Path:
        """Return the log file of the child with this name."""
        if not name or "/" in name:
            raise InputError(f"{name!r} can't be the name of a process: it names its log file, without '/'")
        return self.data_dir / "logs" / f"{name}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _servers(self) -> list[ServerProcess | ReplicaSet]:
        return [server for server in (self.mongod, self.replica_set, self.valkey) if server is not None]

    def _run(self, name: str, arguments: list[str], env: Mapping[str, str] | None) -> ChildProcess:
        make_private(self.data_dir)
        # Without buffering, the last lines of a killed worker are in its log.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment(), **(env or {})}
        return ChildProcess(name, [sys.executable, "-m", "recovery", *arguments], self.log(name), env=environment)
