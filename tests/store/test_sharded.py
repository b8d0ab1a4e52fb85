"""A mongos is refused, by whoever comes to it first."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from typing import Any

import bson
import pytest

from recovery import Recovery, Settings
from recovery.errors import ServerSharded
from recovery.health.mongodb_server import mongodb
from recovery.store import check_server
from recovery.worker.start_up import wait_for_servers

_HEADER, _OP_REPLY, _OP_QUERY, _OP_MSG = struct.Struct("<iiii"), 1, 2004, 2013
_HELLO: dict[str, Any] = {
    "ok": 1.0,
    "isWritablePrimary": True,
    "ismaster": True,
    "helloOk": True,
    "msg": "isdbgrid",
    "maxBsonObjectSize": 16777216,
    "maxMessageSizeBytes": 48000000,
    "maxWriteBatchSize": 100000,
    "minWireVersion": 0,
    "maxWireVersion": 17,
}


class Mongos(socketserver.StreamRequestHandler):
    """There is none to be had: it says that it is one, and takes whatever it is told for done."""

    server: Answers

    def handle(self) -> None:
        while header := self.rfile.read(_HEADER.size):
            length, request, _, operation = _HEADER.unpack(header)
            body = self.rfile.read(length - _HEADER.size)
            if operation == _OP_QUERY:
                answer = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(_HELLO)
                reply = _OP_REPLY
            else:
                command = bson.decode(body[5 : 5 + struct.unpack_from("<i", body, 5)[0]])
                self.server.asked.append(next(iter(command)))
                answer = struct.pack("<iB", 0, 0) + bson.encode(
                    _HELLO | {"version": "7.0", "versionArray": [7, 0, 0, 0]}
                )
                reply = _OP_MSG
            self.wfile.write(_HEADER.pack(_HEADER.size + len(answer), 0, request, reply) + answer)


class Answers(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Mongos)
        self.asked: list[str] = []


@pytest.fixture
def answers() -> Iterator[Answers]:
    with Answers() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def sharded(settings: Settings, answers: Answers) -> Settings:
    return settings.model_copy(update={"mongo_uri": f"mongodb://127.0.0.1:{answers.server_address[1]}/"})


def test_a_worker_and_a_command_that_start(sharded: Settings) -> None:
    with pytest.raises(ServerSharded, match=r"127\.0\.0\.1:\d+.* is a mongos: .*\. Give the address of a replica set"):
        wait_for_servers(lambda: check_server(sharded.mongo_uri), 60)


def test_even_where_only_one_server_is_asked(sharded: Settings) -> None:
    with pytest.raises(ServerSharded):
        check_server(f"{sharded.mongo_uri}?directConnection=true")


def test_a_service_that_starts_a_process(sharded: Settings, answers: Answers) -> None:
    """It asks nobody how the server is: nothing is written all the same."""
    app = Recovery(sharded)
    with pytest.raises(ServerSharded):
        app.start(app.process("order")(lambda: 1))
    assert set(answers.asked) <= {"hello", "ismaster", "ping"}


def test_doctor_tells_it(sharded: Settings) -> None:
    check = mongodb(Recovery(sharded).resources)
    assert check.level == "PROBLEM" and "is a mongos" in check.found
