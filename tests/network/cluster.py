"""The cluster on the seven hosts: servers, workers, a beat and clients, and what the tests ask of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from recovery.stack.child import ChildProcess
from recovery.stack.servers import Mongod, Valkey
from tests.network.app import FOLDER, HOST
from tests.network.hosts import SWITCH, Hosts
from tests.waiting import wait_until

T = TypeVar("T")

MONGODB = ("mongo1", "mongo2", "mongo3")
REDIS, CLIENT = "redis", "client"
WORKERS = ("worker1", "worker2")
BEAT = "worker1"
"""The host on which the beat runs, beside a worker."""
NUMBERS = {**{name: n for n, name in enumerate(MONGODB, 1)}, REDIS: 10, "worker1": 21, "worker2": 22, CLIENT: 30}
PORT, REDIS_PORT, SET = 27017, 6379, "rs0"
SERVED = "tests.network.app:app"
HEARTBEAT_TIMEOUT = 6.0
"""Seconds, the default: the promises are made for the defaults."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended: its code, what it printed, and how many seconds it took."""

    code: int
    text: str
    seconds: float


class Cluster:
    """Servers and workers on their hosts, from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts = folder, Hosts(NUMBERS)
        self.children: dict[str, ChildProcess] = {}
        self.shifts = dict.fromkeys(WORKERS, 0)
        """Seconds by which workers' clocks are ahead."""
        addresses = self.hosts.addresses
        self.mongo_uri = f"mongodb://{','.join(f'{addresses[one]}:{PORT}' for one in MONGODB)}/?replicaSet={SET}"
        self.broker_url = f"redis://{addresses[REDIS]}:{REDIS_PORT}/0"

    def start(self) -> None:
        """Make the hosts and start all that runs on them; return once both workers live."""
        self.hosts.up()
        mongod, valkey = Mongod(self.folder, self.folder).binary, Valkey(self.folder, self.folder).binary
        for name in MONGODB:
            (self.folder / name).mkdir()
            self.run(
                name, name, mongod, "--replSet", SET, "--bind_ip", "0.0.0.0", "--port", str(PORT),
                "--dbpath", self.folder / name, "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "256",
                "--nounixsocket", "--quiet", "--networkMessageCompressors", "snappy,zstd", "--noscripting",
            )  # fmt: skip
        self.run(REDIS, REDIS, valkey, "--port", str(REDIS_PORT), "--protected-mode", "no", "--save", "")
        wait_until(self._form_replica_set, 60, "the replica set")
        wait_until(self.primary, 60, "a primary")
        made = self.command("init")
        assert made.code == 0, made.text
        for name in WORKERS:
            self.start_worker(name)
            self.run(f"witness-{name}", name, sys.executable, "-m", "tests.network.witness", self.mongo_uri)
        self.run("beat", BEAT, sys.executable, "-m", "recovery", "beat")
        wait_until(lambda: self.ask(self._workers_alive) == len(WORKERS), 60, "both workers")

    def stop(self) -> None:
        """End all of it, whatever its state."""
        for child in reversed(self.children.values()):
            child.kill_group()
        self.hosts.down()

    def start_worker(self, name: str, **env: str) -> None:
        """Start a worker on its host, in place of the one that may run there, which is killed."""
        if name in self.children:
            self.children[name].kill_group()
        self.run(name, name, sys.executable, "-m", "recovery", "worker", "--name", name, "--concurrency", "2", **env)

    def shift_clock(self, name: str, seconds: int) -> None:
        """Have a worker started anew whose clock is ahead by so many seconds; return once it lives."""
        library = self.folder / "clock.so"
        if not library.exists():
            source = Path(__file__).parents[1] / "cluster" / "shifted_clock.c"
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        before = {one["_id"] for one in self.ask(lambda database: list(database["workers"].find()))}
        self.start_worker(name, LD_PRELOAD=str(library), CLOCK_SHIFT=str(seconds))
        self.shifts[name] = seconds

        def lives(database: Any) -> bool:
            found = list(database["workers"].find())
            return len(found) == len(WORKERS) and any(one["_id"] not in before for one in found)

        wait_until(lambda: self.ask(lives), 60, f"{name}, and the end of the one before")

    def run(self, name: str, host: str, *command: str | Path, **env: str) -> ChildProcess:
        """Start a program on a host, as on a machine of its own. It ends with the cluster."""
        environment = self._environment(host) | env
        child = ChildProcess(name, list(self.hosts.alone_on(host, *command)), self.log(name), env=environment)
        self.children[name] = child
        return child

    @contextmanager
    def slow_switch(self, loss_percent: float, delay_ms: float) -> Iterator[None]:
        """Have packets lost and late between all hosts, as long as this lasts."""
        program = self.folder / "slow_switch"
        if not program.exists():
            source = Path(__file__).with_name("slow_switch.c")
            subprocess.run(["cc", "-O2", "-o", program, source], check=True)

        def start(cables: list[str]) -> ChildProcess:
            return self.run("slow_switch", SWITCH, program, str(loss_percent), str(delay_ms), *cables)

        with self.hosts.switched_by(start):
            yield

    def command(self, *words: str, host: str = CLIENT, timeout: float = 120) -> Done:
        """Run a `recovery` command on a host."""
        began = time.monotonic()
        full = self.hosts.on(host, sys.executable, "-m", "recovery", *words)
        done = subprocess.run(full, env=self._environment(host), capture_output=True, text=True, timeout=timeout)
        return Done(done.returncode, done.stdout + done.stderr, time.monotonic() - began)

    def _environment(self, host: str) -> dict[str, str]:
        temporary = self.folder / "tmp" / host  # on machines of their own pids are the same, and files named by them
        temporary.mkdir(parents=True, exist_ok=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("RECOVERY_")},
            "RECOVERY_MONGO_URI": self.mongo_uri, "RECOVERY_BROKER_URL": self.broker_url, "RECOVERY_APP": SERVED,
            "RECOVERY_LOG_FORMAT": "json", "NO_COLOR": "1", "TMPDIR": str(temporary),
            FOLDER: str(self.folder), HOST: host,
        }  # fmt: skip

    def log(self, name: str) -> Path:
        """Where a program writes."""
        return self.folder / "logs" / f"{name}.log"

    def lines(self, file: str) -> list[dict[str, Any]]:
        """What was noted in a file of the run."""
        path = self.folder / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ledger(self) -> list[dict[str, Any]]:
        """All runs of tasks: when each began and ended, and where."""
        return [line for name in WORKERS for line in self.lines(f"ledger-{name}")]

    def ask(self, question: Callable[[Any], T]) -> T:
        """What a function gives of the database, from where all hosts are always reached."""
        return self.hosts.ask(lambda: question(self._database))

    @cached_property
    def _database(self) -> Any:
        """Used in the switch alone, since a connection belongs to the network in which it is made."""
        return MongoClient(self.mongo_uri, serverSelectionTimeoutMS=30_000)["recovery"]

    @staticmethod
    def _workers_alive(database: Any) -> int:
        alive = {"$expr": {"$gt": ["$recoveryTime", "$$NOW"]}, "recoveryTime": {"$exists": True}}
        return int(database["workers"].count_documents(alive))

    def primary(self) -> str | None:
        """The member that a majority follows, or that says so of itself while there is none."""
        return self.hosts.ask(lambda: next((name for name in MONGODB if self._hello(name, "isWritablePrimary")), None))

    def _hello(self, name: str, field: str) -> Any:
        try:
            with self._member(name) as client:
                return client.admin.command("hello").get(field)
        except PyMongoError:
            return None

    def _member(self, name: str) -> MongoClient[dict[str, Any]]:
        address = self.hosts.addresses[name]
        return MongoClient(address, PORT, directConnection=True, serverSelectionTimeoutMS=2000, socketTimeoutMS=2000)

    def _form_replica_set(self) -> bool:
        addresses = [f"{self.hosts.addresses[name]}:{PORT}" for name in MONGODB]
        members = [{"_id": number, "host": address} for number, address in enumerate(addresses)]

        def form() -> bool:
            try:
                with self._member(MONGODB[0]) as client:
                    client.admin.command("replSetInitiate", {"_id": SET, "members": members})
                return True
            except PyMongoError:
                return False  # it comes up

        return self.hosts.ask(form)

    def wait_healthy(self) -> None:
        """Heal, and wait until there is a primary and both workers live: what the next scenario begins with."""
        self.hosts.heal()
        wait_until(self.primary, 60, "a primary")
        wait_until(lambda: self.ask(self._workers_alive) == len(WORKERS), 60, "both workers")


def secondaries(primary: str) -> Iterable[str]:
    """The members that are not the primary."""
    return [name for name in MONGODB if name != primary]


def told_by(log: Path, offset: int = 0) -> list[Mapping[str, Any]]:
    """What a program logged from a place in its file on, as JSON; other lines are passed over."""
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"time"')]
