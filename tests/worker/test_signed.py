"""A cluster whose messages are signed: its own are taken, nobody else's; and the key is shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.queue import Broker, Signer
from recovery.queue.message import NUDGE, SPARK_QUEUE
from recovery.store import Queued
from tests.cluster.conftest import Cluster
from tests.cluster.conftest import cluster as cluster
from tests.waiting import wait_until
from tests.worker.test_messages import Stranger, goes_on

pytestmark = pytest.mark.cluster
APP = "tests.cluster.app:app"
KEY, OLD = "secret-of-this-cluster-0123456789", "an-older-key-of-this-cluster-0123"


def keyed(cluster: Cluster, keys: str, **changes: object) -> Cluster:
    """The same servers, as a client and workers with these keys have them."""
    changes = {"message_key": keys, "scan_interval": 0.2, **changes}
    values = {name: value for name, value in cluster.settings.model_dump().items() if value is not None}
    return Cluster(cluster.stack, type(cluster.settings)(**{**values, **changes}), Path(cluster.folder))


def test_only_what_is_signed_is_taken(cluster: Cluster) -> None:
    signed, other = keyed(cluster, f"{KEY},{OLD}"), keyed(cluster, OLD)
    worker = signed.worker()
    beat = signed.beat()
    assert goes_on(signed)
    assert goes_on(other), "the older key is still good"
    stranger = Stranger(cluster)
    told = "a message in one_slow is none of ours and is discarded: signature"
    cluster.app.start("one_slow", cluster.folder, 0)
    wait_until(lambda: told in signed.log(worker), 20, "it is refused")
    Broker(cluster.settings.broker_url, Signer(["k" * 32])).push([Queued("p/t", "slow", "k", stranger.now)])
    stranger.push(NUDGE, stranger.good(NUDGE))
    stranger.wait_taken()
    wait_until(lambda: signed.database["scanners"].count_documents({}), 20, "a signed nudge is answered")
    for log in (signed.log(worker), signed.log(beat)):
        assert KEY not in log
        assert OLD not in log


@pytest.mark.soak
@pytest.mark.spark
def test_a_sweep_of_beat_is_an_operation(cluster: Cluster) -> None:
    """Ordered and done by the worker for Spark: one after the other, never two at once."""
    signed = keyed(cluster, KEY, sweep_interval=2.0, spark_master="local[1]")
    worker = signed.stack.start_worker(
        APP, concurrency=1, queues=[SPARK_QUEUE], pool="threads", env=signed.settings.environment()
    )
    signed.beat()
    operations = signed.database["operations"]
    wait_until(lambda: operations.count_documents({"state": "finished"}) >= 2, 120, "two sweeps")
    done = list(operations.find({"state": "finished"}).sort("_id", 1))
    assert {(one["who"], one["kind"], one["spark"], one["why"]) for one in done} == {
        ("Celery beat", "repair", True, "every sweep_interval")
    }
    assert done[1]["askedAt"] >= done[0]["endedAt"], "the first was over"
    assert "still under way" in signed.log(worker), "and what was due meanwhile was left out"
