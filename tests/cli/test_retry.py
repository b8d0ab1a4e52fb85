"""`recovery retry`: what is asked wrongly, and that the exit code is the answer."""

from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest

from recovery import Settings
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.store import Store
from tests.cli.command import recovery


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("--reason KV_LOCKED", 0, "yes, after 0.001s"),
        ("--reason SOCKET_CLOSED_WHILE_IN_FLIGHT", 1, "it is not idempotent"),
        ("--reason SOCKET_CLOSED_WHILE_IN_FLIGHT --idempotent --attempt 9", 0, "yes, after 0.5s"),
        ("--catalogue couchbase --service kv --status 0x09 --operation unlock", 1, "not in the list"),
        ("--catalogue couchbase --service kv --status 0x50 --error-map-retry", 0, "KV_ERROR_MAP_RETRY_INDICATED"),
        ("--error TimeoutError --not-idempotent", 1, "TIMEOUT_IN_FLIGHT"),
        ("--error TimeoutError", 0, "by the policy"),
        ("", 2, "give one of --error, --code, --reason and --catalogue, not none"),
        ("--code 20020 --reason KV_LOCKED", 2, "not --code, --reason"),
        ("--catalogue hive", 2, "only couchbase is asked by its answers"),
        ("--catalogue couchbase", 2, "give its --service and --status, too"),
        ("--catalogue couchbase --service kv --status x", 2, "--status x: must be a number, for example 4040 or 0x86"),
        ("--error no.such.Thing!", 2, "is not the name of an error class"),
    ],
)
def test_explain(line: str, code: int, told: str) -> None:
    done = recovery("retry", "explain", *line.split())
    assert (done.returncode, told in " ".join((done.stdout + done.stderr).split())) == (code, True), done


def test_the_same_seed_gives_the_same_delays() -> None:
    def delays(*options: str) -> list[float]:
        found: list[float] = json.loads(recovery("retry", "delays", "--json", *options).stdout)["delays"]
        return found

    assert delays("--seed", "7") == delays("--seed", "7") != delays("--seed", "8")
    plain = delays("--initial", "10s", "--coefficient", "2", "--jitter", "0", "0", "--maximum", "1m", "--total", "3m")
    assert plain == [10, 20, 40, 60]


def test_the_delays_that_hold_of_an_actor_and_a_type(settings: Settings) -> None:
    store = Store(settings)
    plain = {"retry_coefficient": 2.0, "retry_jitter_most": 0.0}
    store.actors.save([ActorPreferences(id="replicate", retry_initial=10.0, **plain)])
    store.process_types.save([ProcessTypePreferences(id="nightly", retry_initial=1.0, retry_total=100.0)])
    store.actors.override("replicate", {"retry_maximum": 30.0})

    def asked(*options: str) -> CompletedProcess[str]:
        return recovery("retry", "delays", "--seed", "1", *options, env=settings.environment())

    def delays(*options: str) -> list[float]:
        found: list[float] = json.loads(asked("--json", *options).stdout)["delays"]
        return found

    assert delays("--actor", "replicate")[:4] == [10, 20, 30, 30]
    assert delays("--actor", "replicate", "--type", "nightly") == [10, 20, 30, 30]
    assert delays("--actor", "replicate", "--initial", "5s")[:4] == [5, 10, 20, 30]
    unknown = asked("--actor", "replicat")
    assert (unknown.returncode, "did you mean 'replicate'?" in unknown.stderr) == (2, True)
    store.actors.override("replicate", {"retry": False})
    off = asked("--actor", "replicate")
    assert (off.returncode, "replicate: retry is off" in off.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--initial 2h", "retry_maximum (1h by default) must be at least retry_initial, which is 2h"),
        ("--coefficient 0.5", "must be a number of at least 1"),
        ("--jitter 40s 30s", "retry_jitter_most must be at least retry_jitter_least, which is 40s"),
        ("--initial -5s", "duration"),
        ("--total 1s", "retry_total must be at least retry_initial"),
        ("--coefficient nan", "must be a number of at least 1"),
        ("--initial 0.1ms", "0 or at least 1ms"),
    ],
)
def test_a_policy_that_makes_no_sense(options: str, told: str) -> None:
    done = recovery("retry", "delays", *options.split())
    assert (done.returncode, told in " ".join(done.stderr.split())) == (2, True), done
