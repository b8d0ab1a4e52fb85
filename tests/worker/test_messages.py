"""Whatever somebody else puts into Redis: workers drop it, say so in a line, and go on."""

from __future__ import annotations

import base64
import json
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from recovery.queue import encode
from recovery.queue.coordination import KEPT_KEY
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP
from recovery.queue.untrusted import ASIDE
from recovery.records.ids import new_pass, new_process_id
from recovery.stack.child import ChildProcess
from recovery.store import Queued
from tests.cluster.conftest import Cluster
from tests.cluster.conftest import cluster as cluster
from tests.queue.shapes import ARGUMENT, bomb, command, commands, damaged
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
QUEUES = ("slow", "one_slow", NUDGE)


class Stranger:
    """Somebody who can write to Redis."""

    def __init__(self, cluster: Cluster) -> None:
        self.redis = redis.Redis.from_url(cluster.settings.broker_url, socket_timeout=30)
        self.now = cluster.app.resources.store.now()
        database = cluster.settings.broker_url.rpartition("/")[2]
        self.channel = f"/{database}.celery.pidbox"

    def good(self, actor: str = "slow", queued_at: datetime | None = None) -> str:
        """A message that is right, for a task that does not exist."""
        return encode(Queued(f"{new_process_id()}/start", actor, new_pass(), queued_at or self.now))

    def push(self, queue: str, *texts: str | bytes) -> None:
        self.redis.lpush(queue, *texts)

    def broadcast(self, text: bytes) -> int:
        return int(self.redis.publish(self.channel, text))

    def wait_taken(self, timeout: float = 20) -> None:
        """Until no queue has a message, once: what a worker takes out to see whether it is stale may come back."""
        wait_until(lambda: not any(self.redis.llen(queue) for queue in QUEUES), timeout, "all messages taken")

    def left(self) -> list[str]:
        """What is in Redis but for kombu's tables and what scanners know by."""
        keys = (key.decode() for key in self.redis.scan_iter())
        return [key for key in keys if not key.startswith(("_kombu.binding", KEPT_KEY))]

    def everything(self) -> None:
        """All shapes, everywhere that a worker takes from."""
        for queue in ("slow", NUDGE):
            self.push(queue, *(text for _, text in damaged(self.good())))
            self.push(queue, bomb(self.good()))
        for _, text in commands():
            self.broadcast(text)


@pytest.fixture
def stranger(cluster: Cluster) -> Stranger:
    return Stranger(cluster)


def family(worker: ChildProcess) -> set[int]:
    parent = psutil.Process(worker.pid)
    return {parent.pid, *(child.pid for child in parent.children(recursive=True))}


def goes_on(cluster: Cluster) -> bool:
    process_id = cluster.app.start("one_slow", cluster.folder, 0)
    return isinstance(cluster.app.result(process_id, timeout=20), int)


def no_trace(cluster: Cluster, worker: ChildProcess) -> None:
    said = cluster.log(worker)
    assert "Traceback" not in said
    assert ARGUMENT not in said
    assert not set(said) & {"\x1b", "\x07", "\x00", "\u202e"}
    assert all(len(line) < 500 for line in said.splitlines())


def test_no_message_ends_a_worker_nor_its_next(cluster: Cluster, stranger: Stranger) -> None:
    worker = cluster.worker()
    before = family(worker)
    stranger.everything()
    stranger.push("slow", stranger.good())
    assert goes_on(cluster)
    stranger.wait_taken()
    assert family(worker) == before
    stranger.everything()
    worker.terminate()
    assert worker.wait(20)
    assert worker.exit_code == 0
    no_trace(cluster, worker)
    second = cluster.worker()
    assert goes_on(cluster)
    wait_until(lambda: not stranger.left(), 20, "nothing left")
    no_trace(cluster, second)


def test_what_is_forged_is_not_believed(cluster: Cluster, stranger: Stranger) -> None:
    """A time that is still to come; a sweep for a worker that runs none."""
    worker = cluster.worker(heartbeat_interval=0.2, heartbeat_timeout=2.0)
    stranger.push("one_slow", stranger.good("one_slow", stranger.now.replace(year=2999)))
    sweep = json.loads(stranger.good())
    sweep["headers"]["task"] = SWEEP
    for queue in ("slow", SPARK_QUEUE):
        stranger.push(queue, json.dumps(sweep))
    stranger.wait_taken()
    assert goes_on(cluster)

    def taken() -> Any:
        found = cluster.app.resources.store.queues.all().get("one_slow")
        return found and found.taken_queued_at

    wait_until(lambda: goes_on(cluster) and taken() is not None, 20, "a time")
    assert taken().year == stranger.now.year
    assert "a message in slow is none of ours and is discarded: other task" in cluster.log(worker)
    assert stranger.redis.llen(SPARK_QUEUE) == 1, "waits for a worker that sweeps"


def test_what_stands_in_the_place_of_ours_is_set_aside(cluster: Cluster, stranger: Stranger) -> None:
    """Else no queue would be polled, and no worker start."""
    keys = ["slow", "slow\x06\x163", NUDGE, "_kombu.binding_deadlines"]
    for exchange in ("recovery.default", "celery.pidbox", NUDGE):
        keys += [f"_kombu.binding.{exchange}", f"_kombu.binding_permanent.{exchange}"]
    for key in keys:
        stranger.redis.set(key, "x")
    worker = cluster.worker()
    assert goes_on(cluster)
    stranger.redis.hset("slow", "x", "x")
    assert goes_on(cluster)
    wait_until(lambda: not stranger.redis.exists("slow"), 20, "it is set aside")
    kinds = [stranger.redis.type(key) for key in stranger.redis.scan_iter()]
    assert (kinds.count(b"string"), kinds.count(b"hash")) == (len(keys), 1), "nothing of it is lost"
    assert len(list(stranger.redis.scan_iter(f"slow.{ASIDE}.*"))) == 3
    line = r" in Redis held a \w+ that is none of ours, and was renamed to \S+\.not-a-queue\."
    assert re.search(line, cluster.log(worker))
    no_trace(cluster, worker)


def test_a_value_of_any_size_is_passed_over(cluster: Cluster, stranger: Stranger) -> None:
    worker = cluster.worker()
    assert goes_on(cluster)
    before = most_memory(worker.pid)
    stranger.push("slow", b"x" * 100_000_000)
    # Redis itself cuts off who is to hear more than 32 MB.
    wait_until(lambda: stranger.broadcast(b"x" * 30_000_000), 20, "somebody listens")
    for size in (16_384, 16_385, 65_534, 65_535, 65_536, 131_072):
        stranger.push("slow", b"[" * size)
    stranger.wait_taken()
    assert goes_on(cluster)
    assert most_memory(worker.pid) - before < 20_000_000
    no_trace(cluster, worker)


def most_memory(pid: int) -> int:
    """The most that a process had resident at any time, in bytes."""
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_only_a_ping_is_answered(cluster: Cluster, stranger: Stranger) -> None:
    worker = cluster.worker()
    key, other = str(uuid.uuid4()), str(uuid.uuid4())
    answers, table = f"{key}.reply.celery.pidbox", "_kombu.binding.reply.celery.pidbox"
    stranger.redis.sadd(table, f"{key}\x06\x16\x06\x16slow", "junk", b"\xff\x06\x16")
    stranger.redis.set(f"{other}.reply.celery.pidbox", "no queue")
    asked: dict[str, Any] = {"reply_to": {"exchange": "elsewhere", "routing_key": key}, "ticket": str(uuid.uuid4())}
    wait_until(lambda: stranger.broadcast(command(method="stats", **asked)), 20, "somebody listens")
    for method in ("conf", "shutdown", "ping"):
        stranger.broadcast(command(method=method, arguments={"timeout": ARGUMENT}, **asked))
    answer = stranger.redis.brpop([answers], timeout=20)
    assert answer is not None
    assert "pong" in str(json.loads(base64.b64decode(json.loads(answer[1])["body"])))
    stranger.broadcast(
        command(method="ping", reply_to={"exchange": "x", "routing_key": other}, ticket=str(uuid.uuid4()))
    )
    assert goes_on(cluster)
    wait_until(lambda: "an answer was not sent" in cluster.log(worker), 20, "it is told")
    assert not stranger.redis.llen(answers) + stranger.redis.llen("slow")
    no_trace(cluster, worker)
