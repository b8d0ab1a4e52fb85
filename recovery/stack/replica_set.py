"""A replica set of several mongods on this machine, for tests in which the primary is killed, frozen or stepped down.

All members run the same program. With three members any one of them may be unavailable. Elections are quick
(`ELECTION_TIMEOUT`), because no slow network connects the members.

Limits: those of `servers`. The oplog is small, for members that are away for minutes.
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
"""Seconds without a heartbeat after which a primary counts as lost. MongoDB's own default of 10 s is for networks."""
HEARTBEAT = 0.5
LOOK_EVERY = 0.05


class Member(Mongod):
    """A mongod that is ready when it answers: as primary, as secondary, or while it belongs to no set yet."""

    oplog_mb = 256

    def __init__(self, directory: Path, log: Path, name: str, port: int | None = None, cache_gb: float = 0.25) -> None:
        super().__init__(directory, log, port, cache_gb)
        self.label = name

    def _command(self) -> Sequence[str | Path]:
        parameters = {
            # On SIGTERM a primary would search 15 s for a successor, but all other members are ending too.
            "shutdownTimeoutMillisForSignaledShutdown": 0,
            # `hold_back` needs it.
            "enableTestCommands": 1,
        }
        options = [part for name, value in parameters.items() for part in ("--setParameter", f"{name}={value}")]
        return [*super()._command(), *options]

    def hold_back(self, held: bool = True) -> None:
        """Stop or resume this member's replication from the primary. A held member still runs, votes and answers."""
        self.command("configureFailPoint", "stopReplProducer", mode="alwaysOn" if held else "off")

    def command(self, name: str, value: Any = 1, **options: Any) -> dict[str, Any]:
        """Run a command on the database `admin`, and return its reply.

        The command may run twice, because it is repeated when the connection breaks. The library's retry policies do
        not apply, because only developers wait for it. Raises ServerUnavailable, and pymongo's OperationFailure if the
        server refuses the command.
        """
        deadline, pause = time.monotonic() + START_TIMEOUT, threading.Event()
        while True:
            try:
                with self.connect(timeout=5.0) as client:
                    return client.admin.command(name, value, **options)
            except AutoReconnect as error:
                # A member that rolls back its own writes closes all connections.
                if time.monotonic() > deadline:
                    raise ServerUnavailable(
                        f"{self.label} on {self.address} does not answer to {name} within {START_TIMEOUT:g} s "
                        f"({error}); see {self.log}"
                    ) from None
            pause.wait(LOOK_EVERY)

    def hello(self) -> dict[str, Any]:
        """Return the reply to `hello`, or an empty dict if the member does not answer."""
        try:
            with self.connect() as client:
                return client.admin.command("hello")
        except PyMongoError:
            return {}

    def _ready(self) -> bool:
        hello = self.hello()
        return any(hello.get(part) for part in ("isWritablePrimary", "secondary", "isreplicaset"))


class ReplicaSet:
    """Members that form one set when `start` has returned: one primary, and secondaries."""

    def __init__(
        self, directory: Path, log: Callable[[str], Path], members: int = 3, ports: Sequence[int] = ()
    ) -> None:
        """Create a set. `log` returns the log file for a member's name. Without `ports` free ports are chosen."""
        names = [f"mongod-{number}" for number in range(1, members + 1)]
        self.members = [
            Member(directory / name, log(name), name, ports[index] if ports else None)
            for index, name in enumerate(names)
        ]

    @property
    def uri(self) -> str:
        """The address of the set for clients."""
        return f"mongodb://{','.join(member.address for member in self.members)}/?replicaSet={REPLICA_SET}"

    def start(self) -> None:
        """Start the members that don't run, and wait until the set is complete."""
        self._each([member.start for member in self.members])
        self._form()
        self._wait(self._is_complete, "whole")

    def stop(self) -> None:
        """Stop all running members in order."""
        self._each([member.stop for member in self.members])

    def primary(self) -> Member:
        """Return the primary once it accepts writes, and wait for an election if necessary. Raises
        ServerUnavailable."""
        return self._wait(self._primary, "with a primary")

    def secondaries(self) -> list[Member]:
        """Return the running members that are not primary."""
        primary = self.primary()
        return [member for member in self.members if member.running and member is not primary]

    def stop_replication(self) -> Member:
        """Stop all secondaries from replicating, and return the primary.

        No later write is acknowledged by a majority. All later writes are rolled back when the primary is lost.
        """
        primary = self.primary()
        for member in self.members:
            if member is not primary and member.running:
                member.hold_back()
        return primary

    def resume_replication(self) -> None:
        """Let all running members replicate from the primary again."""
        for member in self.members:
            if member.running and not member.frozen:
                member.hold_back(False)

    def step_down(self, seconds: float = 5.0) -> Member:
        """Make the primary step down, and exclude it from elections for `seconds`. Return that member."""
        primary = self.primary()
        try:
            with primary.connect(timeout=5.0) as client:
                client.admin.command("replSetStepDown", round(seconds), secondaryCatchUpPeriodSecs=round(seconds / 2))
        except AutoReconnect:
            pass  # the primary may close its connections before it replies
        return primary

    def _primary(self) -> Member | None:
        # A frozen primary that wakes up claims to be primary for a moment. Then two members do, and the later election
        # counts.
        replies = [(member, member.hello()) for member in self.members if member.running and not member.frozen]
        elected = [(hello["electionId"], index) for index, (_, hello) in enumerate(replies) if hello.get("electionId")]
        if not elected:
            return None
        member, hello = replies[max(elected)[1]]
        # Before it accepts writes, a new primary copies writes from members that are ahead, including members that
        # return just now.
        return member if hello.get("isWritablePrimary") else None

    def _is_complete(self) -> bool:
        replies = [member.hello() for member in self.members]
        return any(hello.get("isWritablePrimary") for hello in replies) and all(
            hello.get("isWritablePrimary") or hello.get("secondary") for hello in replies
        )

    def _form(self) -> None:
        """Initiate the set, or update its addresses if it was formed on other ports."""
        members = [{"_id": index, "host": member.address} for index, member in enumerate(self.members)]
        config = _config(self.members[0])
        with self.members[0].connect(timeout=START_TIMEOUT) as client:
            if config is None:
                timeouts = {
                    "electionTimeoutMillis": round(ELECTION_TIMEOUT * 1000),
                    "heartbeatIntervalMillis": round(HEARTBEAT * 1000),
                }
                client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members, "settings": timeouts})
            elif [member["host"] for member in config["members"]] != [member.address for member in self.members]:
                config |= {"version": config["version"] + 1, "members": members}
                # Forced, because with the old addresses the set has no primary that could agree.
                client.admin.command("replSetReconfig", config, force=True)

    def _wait(self, check: Callable[[], T | None], state: str) -> T:
        if not (result := poll(check, START_TIMEOUT, LOOK_EVERY)):
            raise ServerUnavailable(
                f"the replica set of {self.uri} is not {state} within {START_TIMEOUT:g} s; see "
                f"{', '.join(str(member.log) for member in self.members)}"
            )
        return result

    @staticmethod
    def _each(steps: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor() as pool:
            for future in [pool.submit(step) for step in steps]:
                future.result()


def _config(member: Member) -> dict[str, Any] | None:
    """Return the set's configuration as this member has it, or None if the member belongs to no set yet."""
    try:
        config: dict[str, Any] = member.command("replSetGetConfig")["config"]
    except OperationFailure as error:
        if error.code == NOT_YET_INITIALIZED:
            return None
        raise
    return config
