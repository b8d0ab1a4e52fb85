"""The newest version of an application is that of its live worker that registered last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from recovery.health.versions import live_versions
from recovery.records import Worker

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def worker(name: str, version: str | None, minutes: int | None, application: str | None = "shop") -> Worker:
    registered = None if minutes is None else NOON + timedelta(minutes=minutes)
    return Worker(
        id=name, name=name, host="", pid=1, pid_started=1, application=application, application_version=version,
        started_at=registered,
    )  # fmt: skip


def told(*workers: Worker) -> list[tuple[str | None, str | None, bool]]:
    return [(one.application, one.version, one.is_newest) for one in live_versions(workers)]


def test_of_a_rolling_upgrade_the_version_that_came_last() -> None:
    found = told(worker("a", "1.10", 5), worker("b", "1.9", 0), worker("c", "1.9", 3))
    assert found == [("shop", "1.10", True), ("shop", "1.9", False)]


def test_of_a_rollback_the_version_that_came_back() -> None:
    found = live_versions([worker("a", "1.10", 5), worker("b", "1.9", 0), worker("c", "1.9", 8)])
    assert [(one.version, one.is_newest, one.workers) for one in found] == [
        ("1.9", True, ("b", "c")),
        ("1.10", False, ("a",)),
    ]
    assert found[0].registered_at == NOON + timedelta(minutes=8)


def test_applications_have_versions_of_their_own_and_one_newest_each() -> None:
    found = told(worker("a", "1", 5), worker("b", "7", 0, "bank"), worker("c", "8", 1, "bank"))
    assert found == [("bank", "8", True), ("bank", "7", False), ("shop", "1", True)]


def test_workers_that_record_no_version_are_one_of_their_own() -> None:
    assert told(worker("a", None, 5), worker("b", "1", 9)) == [("shop", "1", True), ("shop", None, False)]
    assert told(worker("a", None, None, None)) == [(None, None, True)]


def test_of_two_that_registered_at_once_one_is_the_newest() -> None:
    for order in (1, -1):
        found = told(*[worker("a", "1", 5), worker("b", "2", 5)][::order])
        assert sorted(found, key=str) == [("shop", "1", False), ("shop", "2", True)]
