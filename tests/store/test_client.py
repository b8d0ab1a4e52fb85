"""What is said of a MongoDB that answers and can't be used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pymongo.errors import PyMongoError

from recovery import Recovery
from recovery.errors import ServerUnavailable, ServerUnfit
from recovery.health.model import Cause
from recovery.health.mongodb_server import mongodb
from recovery.settings import Settings
from recovery.stack import Mongod
from recovery.stack.servers import REPLICA_SET
from recovery.store import check_server
from recovery.worker.start_up import wait_for_servers


@pytest.fixture
def misnamed(emptied: Settings) -> Settings:
    uri = emptied.mongo_uri.replace(f"replicaSet={REPLICA_SET}", "replicaSet=wrong")
    return emptied.model_copy(update={"mongo_uri": uri})


def test_a_replica_set_of_another_name_is_named(misnamed: Settings) -> None:
    said = (
        rf"is of another replica set: 127\.0\.0\.1:\d+ is of '{REPLICA_SET}', and the address has replicaSet=wrong\. "
    )
    with pytest.raises(ServerUnfit, match=f"{said}Correct replicaSet in RECOVERY_MONGO_URI"):
        wait_for_servers(lambda: check_server(misnamed.mongo_uri, timeout=0.1), 60)


@pytest.mark.thorough
def test_the_doctor_says_it_too(misnamed: Settings) -> None:
    check = mongodb(Recovery(misnamed).resources)
    assert check.cause is Cause.MONGODB_UNFIT and "is of another replica set" in check.found


class Standalone(Mongod):
    """Of no replica set, or of one that was not initiated."""

    initiated = True

    def _command(self) -> Sequence[str | Path]:
        command = list(super()._command())
        if self.initiated:
            for option in ("--replSet", "--oplogSize"):
                del command[command.index(option) : command.index(option) + 2]
        return command

    def _ready(self) -> bool:
        try:
            with self.connect() as client:
                return bool(client.admin.command("ping"))
        except PyMongoError:
            return False


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("initiated", "options", "said"),
    [
        (True, f"?replicaSet={REPLICA_SET}", "is a standalone server; .* --replSet"),
        (True, "", "is a standalone server; .* --replSet"),
        (False, f"?replicaSet={REPLICA_SET}", r"is of no replica set yet, .* rs\.initiate\(\)"),
        (False, "", r"is of no replica set yet, .* rs\.initiate\(\)"),
    ],
)
def test_a_server_of_no_replica_set_is_named(tmp_path: Path, initiated: bool, options: str, said: str) -> None:
    """However its address names one."""
    server = Standalone(tmp_path / "data", tmp_path / "log")
    server.initiated = initiated
    try:
        server.start()
        with pytest.raises(ServerUnavailable, match=said):
            check_server(f"mongodb://{server.address}/{options}", timeout=0.5)
    finally:
        server.stop()
