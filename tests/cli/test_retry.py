"""`recovery retry`: what is asked wrongly, and that the exit code is the answer."""

from __future__ import annotations

import json

import pytest

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
