"""A replica set of several mongods on this machine, to see a primary go: killed, frozen, or stepped down.

All are of the same program; with three of them any one may be away. Elections are quick (`ELECTION_TIMEOUT`), since
there is no network between the members that could be slow.

Limits: as those of `servers`. The small oplog is for members that are away for minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from recovery.errors import ServerUnavailable
from recovery.stack.server_process import START_TIMEOUT
from recovery.stack.servers import NOT_YET_INITIALIZED, REPLICA_SET, Mongod
from recovery.threads import poll

T = TypeVar("T")

ELECTION_TIMEOUT = 2.0
"""Seconds of silence after which a primary counts as gone. MongoDB's own default is 10 s, for networks."""
HEARTBEAT = 0.5
LOOK_EVERY = 0.05


class Member(Mongod):
    """A mongod that is ready once it answers: as primary, as secondary, or since it is in no set yet."""

    oplog_mb = 256

    def __init__(self, directory: Path, log: Path, name: str, port: int | None = None, cache_gb: float = 0.25) -> None:
        super().__init__(directory, log, port, cache_gb)
        self.label = name

    def _command(self) -> Sequence[str | Path]:
        parameters = {
            # Told to end, a primary looks for a successor for 15 s, and all others are ending as well.
            "shutdownTimeoutMillisForSignaledShutdown": 0,
            # For `hold_back`.
            "enableTestCommands": 1,
        }
        given = [part for name, value in parameters.items() for part in ("--setParameter", f"{name}={value}")]
        return [*super()._command(), *given]

    def hold_back(self, held: bool = True) -> None:
        """Have it take nothing from the primary, though it lives, votes and answers; or go on with it."""
        self.command("configureFailPoint", "stopReplProducer", mode="alwaysOn" if held else "off")

    def command(self, name: str, value: Any = 1, **options: Any) -> dict[str, Any]:
        """What it answers to a command for the database `admin` that may run twice: it is asked again where it breaks
        off, by no rules of retry, since nobody but who develops waits for it. Raises ServerUnavailable, and pymongo's
        OperationFailure for what it refuses."""
        deadline, pause = time.monotonic() + START_TIMEOUT, threading.Event()
        while True:
            try:
                with self.connect(timeout=5.0) as client:
                    return client.admin.command(name, value, **options)
            except AutoReconnect as error:
                # One that takes back what only it had closes all its connections.
                if time.monotonic() > deadline:
                    raise ServerUnavailable(
                        f"{self.label} on {self.address} does not answer to {name} within {START_TIMEOUT:g} s "
                        f"({error}); see {self.log}"
                    ) from None
            pause.wait(LOOK_EVERY)

    def hello(self) -> dict[str, Any]:
        """What it says of itself; empty if it does not answer."""
        try:
            with self.connect() as client:
                return client.admin.command("hello")
        except PyMongoError:
            return {}

    def _ready(self) -> bool:
        hello = self.hello()
        return any(hello.get(part) for part in ("isWritablePrimary", "secondary", "isreplicaset"))


class ReplicaSet:
    """Members that are one set once `start` has returned: one primary, all others secondaries."""

    def __init__(
        self, directory: Path, log: Callable[[str], Path], members: int = 3, ports: Sequence[int] = ()
    ) -> None:
        """`log` gives the log file of a name. Ports that are not given are chosen."""
        names = [f"mongod-{number}" for number in range(1, members + 1)]
        self.members = [
            Member(directory / name, log(name), name, ports[place] if ports else None)
            for place, name in enumerate(names)
        ]

    @property
    def uri(self) -> str:
        """How clients reach it."""
        return f"mongodb://{','.join(member.address for member in self.members)}/?replicaSet={REPLICA_SET}"

    def start(self) -> None:
        """Start those members that don't run, and wait until the set is whole."""
        self._each([member.start for member in self.members])
        self._form()
        self._wait(self._whole, "whole")

    def stop(self) -> None:
        """End all in order. Does nothing with those that don't run."""
        self._each([member.stop for member in self.members])

    def primary(self) -> Member:
        """The member that is primary and takes writes, waiting for an election. Raises ServerUnavailable."""
        return self._wait(self._primary, "with a primary")

    def secondaries(self) -> list[Member]:
        """The members that run and are not primary."""
        primary = self.primary()
        return [member for member in self.members if member.running and member is not primary]

    def stop_replication(self) -> Member:
        """From here on only the primary has what is written: nothing more is acknowledged by a majority, and all of it
        is taken back once the primary is gone. Who it is."""
        primary = self.primary()
        for member in self.members:
            if member is not primary and member.running:
                member.hold_back()
        return primary

    def resume_replication(self) -> None:
        """All that run take from the primary again, whoever that is."""
        for member in self.members:
            if member.running and not member.frozen:
                member.hold_back(False)

    def step_down(self, seconds: float = 5.0) -> Member:
        """Have the primary step down and not stand for election for so long; who it was."""
        primary = self.primary()
        try:
            with primary.connect(timeout=5.0) as client:
                client.admin.command("replSetStepDown", round(seconds), secondaryCatchUpPeriodSecs=round(seconds / 2))
        except AutoReconnect:
            pass  # it may close its connections before it replies
        return primary

    def _primary(self) -> Member | None:
        # A frozen one that wakes up takes itself for primary for a moment; two say so then, of different elections.
        said = [(member, member.hello()) for member in self.members if member.running and not member.frozen]
        elected = [(hello["electionId"], place) for place, (_, hello) in enumerate(said) if hello.get("electionId")]
        if not elected:
            return None
        member, hello = said[max(elected)[1]]
        # Before it takes writes it takes over what others have that it lacks, also from one that comes back now.
        return member if hello.get("isWritablePrimary") else None

    def _whole(self) -> bool:
        said = [member.hello() for member in self.members]
        return any(hello.get("isWritablePrimary") for hello in said) and all(
            hello.get("isWritablePrimary") or hello.get("secondary") for hello in said
        )

    def _form(self) -> None:
        """Initiate the set, or give it our addresses if it was formed on other ports."""
        members = [{"_id": place, "host": member.address} for place, member in enumerate(self.members)]
        config = _config(self.members[0])
        with self.members[0].connect(timeout=START_TIMEOUT) as client:
            if config is None:
                quick = {
                    "electionTimeoutMillis": round(ELECTION_TIMEOUT * 1000),
                    "heartbeatIntervalMillis": round(HEARTBEAT * 1000),
                }
                client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members, "settings": quick})
            elif [member["host"] for member in config["members"]] != [member.address for member in self.members]:
                config |= {"version": config["version"] + 1, "members": members}
                # By force: with the old addresses in it the set has no primary that could agree.
                client.admin.command("replSetReconfig", config, force=True)

    def _wait(self, look: Callable[[], T | None], what: str) -> T:
        if not (found := poll(look, START_TIMEOUT, LOOK_EVERY)):
            raise ServerUnavailable(
                f"the replica set of {self.uri} is not {what} within {START_TIMEOUT:g} s; see "
                f"{', '.join(str(member.log) for member in self.members)}"
            )
        return found

    @staticmethod
    def _each(steps: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(step) for step in steps]:
                done.result()


def _config(member: Member) -> dict[str, Any] | None:
    """The set's configuration as this member has it; None if it is in no set yet."""
    try:
        config: dict[str, Any] = member.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code == NOT_YET_INITIALIZED:
            return None
        raise
    return config
