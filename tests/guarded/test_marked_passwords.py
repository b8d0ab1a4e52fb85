"""No password, and no key, can be read anywhere but in the environment and the files that they come from.

A cluster is run whose passwords are unmistakable, and then all that it said, stored, sent and served is searched for
them: as they are, percent-encoded, in halves, in base64. And each place is planted with one, and it is found there.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis

from recovery.stack.server_process import HOST
from tests.guarded.cluster import Cluster
from tests.guarded.marks import ODD, Mark, find, password
from tests.guarded.servers import ADMIN, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with redis.Redis.from_url(servers.broker_url(ADMIN)) as client:
        client.acl_log_reset()  # of what tests of other files were refused, on the same servers
    made = Cluster(servers, tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def places(cluster: Cluster) -> dict[str, bytes]:
    """What can be read once a cluster was run, asked, failed and ended in all ways."""
    cluster.work()
    cluster.ask()
    cluster.fail()
    cluster.outage()
    return cluster.places()


def test_no_mark_is_anywhere(cluster: Cluster, places: dict[str, bytes]) -> None:
    found = find(cluster.marks, places)
    assert not found, "\n".join(found)


SEEN = {
    "process list": "-m celery -A recovery.worker.app worker --hostname prefork@",
    # Whose queue the other worker does not serve.
    "file logs/prefork.log": "] crashing [0-9a-f]{32}/start attempt 1: finished",
    "file logs/refused.log": "MongoDB at mongodb://127.0.0.1:[0-9]+ refuses: Authentication failed. Check the user",
    "file logs/threads.log": "Redis at rediss://127.0.0.1:[0-9]+ is away",
    "file logs/beat.log": "beat: Starting",
    "file logs/lost beat.log": "invalid username-password pair",
    "file logs/mongod.log": "Authentication failed",
    "file logs/valkey.log": "Ready to accept connections",
    "file tmp/recovery-metrics-[0-9]+-[^/]+/counter_[0-9]+.db": "recovery_",
    "file tmp/spans": '"name": "attempt double"',
    "Redis appendonlydir/.*incr.aof": "recovery.nudge",
    "MongoDB local.oplog.rs": "order-4711",
    "MongoDB recovery.auditLog": "the ledger is closed",
    "MongoDB recovery.operations": "operator|me@here",
    "MongoDB recovery.decisions": "ValueError",
    "said by metrics": "recovery_queue_depth",
    "said by celery report": "broker_url",
    "said by recovery doctor": '"name": "mongodb", "level": "OK"',
    "said by .*: recovery status --json": "rediss://127.0.0.1",
    "said by .*: recovery status, .*MONGO_URI": "Server heartbeat failed",
    "said by .*: recovery doctor, .*BROKER_URL": "PROBLEM",
    "said by .*: recovery status, .*RECOVERY_CONFIG": "error: RECOVERY_CONFIG=",
}
"""{place: what stands there}."""


@pytest.mark.parametrize("place", SEEN)
def test_there_was_something_to_be_searched(places: dict[str, bytes], place: str) -> None:
    found = [text.decode(errors="replace") for name, text in places.items() if re.match(place, name)]
    assert any(re.search(SEEN[place], text) for text in found), "\n".join(text[-2000:] for text in found)


def test_each_part_had_the_rights_that_it_needs(cluster: Cluster, places: dict[str, bytes]) -> None:
    """The beat has no login to MongoDB at all, and the sweep none but its certificate."""
    log = places["file logs/mongod.log"].decode(errors="replace")
    refused = set(re.findall(r"not authorized on \w+ to execute command \{ ((?:aggregate|find): [^,]+|\w+)[:,]", log))
    # Nobody has a user yet who ends the first session; workers look whether they may make an index; doctor asks for the
    # members and the defaults of concerns, which takes a role of MongoDB's own; and a client that waits for more than
    # two seconds which workers there are, and whether a beat nudges. All go without.
    waits = {r"find: \"workers\"", r"aggregate: \"scanners\""}
    assert refused <= {"endSessions", "createIndexes", "replSetGetStatus", "getDefaultRWConcern", *waits}
    with redis.Redis.from_url(cluster.servers.broker_url(ADMIN), decode_responses=True) as client:
        acl = {(one["username"], one["reason"], one["object"]) for one in client.acl_log(100)}
    # By the one the password could be read, by the other keys: doctor goes without.
    expected = {("operator", "command", "config|get"), ("operator", "command", "dbsize")}
    # Who pings would remove the queue of the answers at its end: for that an operator takes the worker's user.
    of_ping = {("operator", "command", name) for name in ("multi", "exec")}
    assert {one for one in acl if one[1] != "auth"} - of_ping == expected


def test_what_is_planted_is_found(cluster: Cluster, places: dict[str, bytes]) -> None:
    """In a log, an error, a record, a message, a file of metrics, on a command line, in what a command says."""
    assert places
    marks, servers = cluster.servers.marks, cluster.servers
    done = cluster.run("client", "start", "blabbing", "--wait", "30")
    assert done.returncode == 1, done
    cluster.run("reader", "show", done.stdout.split()[0], "--json")
    text = base64.b64encode(f"a message with {marks['operator'].text} in it".encode())
    with redis.Redis.from_url(servers.broker_url(ADMIN)) as client:
        client.lpush("a queue", text)
    (cluster.temporary / "counter_1.db").write_bytes(b"\0\0a label " + marks["key of messages"].text.encode())
    half = marks["admin"].text.partition(ODD)[2]
    cluster.said["a word"] = f"what was behind the @ of an address: {half}".encode()
    cluster.here("operator", "find", f"label.x:'{marks['client'].text}'", "--explain")
    with subprocess.Popen([sys.executable, "-c", "input()", marks["redis operator"].encoded], stdin=-1) as process:
        wait_until(lambda: marks["redis operator"].encoded.encode() in cluster.processes.text(), 10, "a look at it")
        process.communicate(b"\n")
    wait_until(lambda: text in b"".join(t for n, t in cluster.places().items() if n.startswith("Redis")), 10, "the AOF")

    found = find(cluster.marks, cluster.places())
    for one in (
        r"redis worker percent-encoded in file logs/threads\.log",
        r"rworker percent-encoded in file tmp/spans",
        r"mworker percent-encoded in MongoDB recovery\.decisions",
        r"mworker percent-encoded in MongoDB local\.oplog\.rs",
        r"mworker percent-encoded in said by recovery start blabbing",
        r"mworker percent-encoded in said by recovery show",
        r"moperator in base64, \d in Redis appendonlydir",
        r"mkey as it is in file tmp/counter_1\.db",
        r"madmin the second half in said by a word",
        r"mclient .* in said by \d+: recovery find",
        r"roperator percent-encoded in process list",
    ):
        assert any(re.match(one.replace("redis worker", "rworker"), line) for line in found), (one, found)


def test_a_mark_is_found_however_it_is_written() -> None:
    mark: Mark = password("x")
    left, _, right = mark.text.partition(ODD)
    for text in (
        mark.text,
        f"mongodb://u:{mark.encoded}@{HOST}",
        repr(mark.text),
        f'{{"a": "{mark.text.encode("unicode_escape").decode()}"}}',
        f"...{left}@",
        f"/{right}@h",
        *(
            base64.b64encode(b"x" * n + form.encode() + b"yy").decode()
            for n in range(3)
            for form in (mark.text, mark.encoded)
        ),
    ):
        assert find([mark], {"there": f"before {text} behind".encode()}), text
    assert find([mark], {"there": b"nothing of it"}) == []
