"""Every service of docker-compose.yml by hand, with logins: its own command line and environment. See by_hand."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pymongo import MongoClient

from tests.deploy.by_hand import NOT_STARTED, ByHand
from tests.deploy.composed import passwords
from tests.deploy.manifests import built, pods
from tests.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.spark]

CHAIN = [["first", [], 0.1], ["second", ["first"], 0.1]]
UP = quote('up{job="recovery"} == 1')


def recovery(cluster: ByHand, *arguments: str) -> Any:
    """What `docker compose run --rm recovery …` prints with --json."""
    run = cluster.run("recovery", ["recovery", *arguments, "--json"])
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


def start(cluster: ByHand, tasks: list[Any], *options: str) -> Any:
    """Start a process of the demo's."""
    return recovery(cluster, "start", "workflow", json.dumps(tasks), "1", *options)


def asked(cluster: ByHand, service: str, port: int, path: str) -> str:
    """What a service says over HTTP."""
    [address] = cluster.addresses[service]
    with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_the_whole_cluster(full: ByHand, full_env: dict[str, str]) -> None:
    full.up()
    assert full.services.keys() - full.instances.keys() == NOT_STARTED | {"recovery"}
    assert [len(full.instances[name]) for name in ("worker", "beat")] == [2, 2]
    ended = start(full, CHAIN, "--wait", "60")
    assert ended["result"]["count"] == 1
    checks = {check["name"]: check for check in recovery(full, "doctor")["checks"]}
    assert {name: check["found"] for name, check in checks.items() if check["level"] != "OK"} == {}
    assert "recoveryOperator" in checks["rights"]["found"]
    check_sweep_repairs(full, full_env, ended["process"])
    check_prometheus(full)
    check_passwords(full, full_env)
    running = [one for instances in full.instances.values() for one in instances if one.service.health]
    assert all(full.is_healthy(one) for one in running), "to the end"
    check_starts_without_a_node(full)


def check_starts_without_a_node(cluster: ByHand) -> None:
    """What every other service waits for at an `up` does not wait for a node that is away: there is a majority."""
    [node] = cluster.instances["mongo3"]
    node.child.kill_group()
    run = cluster.run("mongo-init", list(cluster.services["mongo-init"].command))
    assert run.returncode == 0, run.stdout + run.stderr


def check_sweep_repairs(cluster: ByHand, env: dict[str, str], process: str) -> None:
    """A process whose end was lost, and at which no scanner would look for an hour, ends by a sweep on this Spark."""
    hosts = ",".join(f"{cluster.addresses[f'mongo{number}'][0]}:27017" for number in (1, 2, 3))
    uri = f"mongodb://admin:{passwords(env)['mongo_admin_password']}@{hosts}/?replicaSet=rs0"
    lost = {
        "$set": {"state": "running", "recoveryTime": datetime.now(UTC) + timedelta(hours=1)},
        "$unset": {"endedAt": True, "result": True},
    }
    with MongoClient[dict[str, Any]](uri) as client:
        processes = client["recovery"]["processes"]
        assert processes.update_one({"_id": process, "state": "finished"}, lost).modified_count == 1
        swept = recovery(cluster, "sweep", "--repair")
        found = processes.find_one({"_id": process})
    assert swept["repaired"] == {"FINISH_NOT_RECORDED": 1}, swept
    assert found is not None and found["state"] == "finished"
    assert recovery(cluster, "operation", "show", str(swept["operation"]))["spark"]
    assert json.loads(asked(cluster, "spark-master", 8080, "/json/"))["activeapps"], "the session stays"


def check_prometheus(cluster: ByHand) -> None:
    """It scrapes all workers, has the rules, and knows where alerts go."""

    def up() -> set[str]:
        found = json.loads(
            asked(cluster, "prometheus", 9090, "/api/v1/query?query=up%7Bjob%3D%22recovery%22%7D%3D%3D1")
        )
        return {one["metric"]["instance"].partition(":")[0] for one in found["data"]["result"]}

    expected = {address for name in ("worker", "sweep", "drill") for address in cluster.addresses[name]}
    with suppress(AssertionError):
        wait_until(lambda: up() == expected, 60, "all to be scraped")
    assert up() == expected
    assert "RecoveryNoWorkers" in asked(cluster, "prometheus", 9090, "/api/v1/rules")
    managers = json.loads(asked(cluster, "prometheus", 9090, "/api/v1/alertmanagers"))
    assert cluster.addresses["alertmanager"][0] in json.dumps(managers["data"]["activeAlertmanagers"])


def check_passwords(cluster: ByHand, env: dict[str, str]) -> None:
    """None is in a process list, an environment, a log, or on a page."""
    secrets = passwords(env)
    texts = dict(shown_of_processes())
    texts |= {str(log): log.read_text(errors="replace") for log in (cluster.folder / "logs").iterdir()}
    texts |= {f"master{path}": asked(cluster, "spark-master", 8080, path) for path in ("/", "/json/")}
    texts |= {f"worker{path}": asked(cluster, "spark-worker", 8081, path) for path in ("/", "/json/")}
    assert len(texts) > 30
    assert any(str(cluster.folder) in text for text in texts.values()), "our command lines are among them"
    found = [(where, name) for where, text in texts.items() for name, value in secrets.items() if value in text]
    # Spark itself hands its own on to executors in their environment.
    assert [(w, name) for w, name in found if not (name == "spark_secret" and w.endswith("/environ"))] == []


def shown_of_processes() -> Iterator[tuple[str, str]]:
    """Command lines and environments."""
    for path in (one for name in ("cmdline", "environ") for one in Path("/proc").glob(f"[0-9]*/{name}")):
        try:
            yield str(path), path.read_text(errors="replace")
        except OSError:
            continue  # it has ended


def test_the_small_cluster(small: ByHand, small_env: dict[str, str]) -> None:
    small.up()
    assert {len(instances) for instances in small.instances.values()} == {1}
    assert start(small, CHAIN, "--wait", "60")["result"]["count"] == 1
    check_read_only(small)
    check_probes(small)
    check_users_again(small, small_env)


def check_read_only(cluster: ByHand) -> None:
    """A worker's container is what it says, or this test ran as a user who can't make it so."""
    if cluster.contained:
        run = cluster.run("worker", ["sh", "-c", "touch /tmp/here && ! touch /here && ! touch /home/here && id -u"])
        assert run.stdout == "1000\n", run.stderr
    else:
        print("not as root: file systems were not read-only")


def check_probes(cluster: ByHand) -> None:
    """Kubernetes' probes of a worker: Redis that is silent has nobody killed, a worker that hangs is."""
    [container] = next(pod["spec"]["containers"] for component, pod in pods(built("base")) if component == "worker")
    [worker], [valkey] = cluster.instances["worker"], cluster.instances["valkey"]

    def code(probe: str) -> int:
        begun = time.monotonic()
        run = cluster.run("worker", container[probe]["exec"]["command"])
        assert time.monotonic() - begun < container[probe]["timeoutSeconds"], f"{probe} is a failure by then"
        return run.returncode

    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    assert [code(probe) for probe in probes] == [0, 0, 0]
    valkey.child.freeze()
    assert [code(probe) for probe in probes] == [2, 2, 0]
    valkey.child.thaw()
    worker.child.freeze()
    assert [code(probe) for probe in probes] == [1, 1, 1]
    worker.child.thaw()
    cluster.wait_healthy(worker)


def check_users_again(cluster: ByHand, env: dict[str, str]) -> None:
    """What makes the users may run again, gives one a new password, and says what is wrong with the administrator's."""
    init = cluster.services["mongo-init"]

    folder = cluster.folder / "secrets of mongo-init"

    def again(**changes: str) -> tuple[int, str]:
        for name, password in (passwords(env) | changes).items():
            if (folder / name).exists():
                (folder / name).unlink()
                (folder / name).write_text(password)
        run = cluster.run("mongo-init", init.command)
        return run.returncode, re.sub(r"(?m)^recovery\..*\n", "", run.stdout + run.stderr)

    assert again() == (0, "")
    assert again(mongo_client_password="another") == (0, "recovery-client has a new password\n")
    code, said = again(mongo_admin_password="another")
    assert code == 1 and said.startswith("error: mongo_admin_password is not the password that MongoDB has"), said
