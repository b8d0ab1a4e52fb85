"""The pages of the Decision scanner: each record is in one page, all kinds have their turns, and one is read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from recovery import Recovery
from recovery.errors import StoreError
from recovery.records import Decision, DecisionState
from recovery.scan import DecisionScanner
from recovery.scan.overdue_tasks import prefetched
from recovery.scan.scanner import Page
from recovery.settings import Settings
from recovery.store import layout
from recovery.store.record_reading import Read
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store.writing import put

SIZE = 3


class Reader:
    """A scanner of small pages. What it lost is given, and what it reads is not overdue any more."""

    def __init__(self, settings: Settings) -> None:
        self.app = Recovery(settings)
        self.store = self.app.resources.store
        layout.create(self.store.database)
        self.scanner = DecisionScanner(self.app.resources, self.app.outbox)
        self.scanner.page = SIZE

    def overdue(self, *names: str, seconds: float) -> None:
        """Add working tasks, the first of which fell overdue so long ago; each other a millisecond later."""
        first = self.store.now() - timedelta(seconds=seconds)
        put(self.store, *(
            Decision(
                id=f"p/{name}", actor="add", state=DecisionState.WORKING, pass_key="k", worker="w#1",
                recovery_time=first + timedelta(milliseconds=number),
            )
            for number, name in enumerate(names)
        ))  # fmt: skip

    @contextmanager
    def run(self) -> Iterator[None]:
        with closing(prefetched(self.scanner._by_turns())) as self.pages:
            yield

    def take(self) -> Page[Decision]:
        return next(self.pages, Page())

    def page(self) -> list[str]:
        """Take a page, and repair it as a scanner does."""
        page: Page[Decision] = self.take()
        later = {"recoveryTime": self.store.now() + timedelta(days=1)}
        ids = [one.id for one in page.items]
        self.store.database["decisions"].update_many({"_id": {"$in": ids}}, {"$set": later})
        return [key.removeprefix("p/") for key in ids]

    def rest(self) -> list[list[str]]:
        found = []
        while names := self.page():
            found.append(names)
        return found


@pytest.fixture
def reader(emptied: Settings) -> Reader:
    return Reader(emptied)


def test_one_page_is_read_once(reader: Reader) -> None:
    reader.overdue("a", "b", seconds=3600)
    with reader.run():
        page = reader.take()
        assert [one.id for one in page.items] == ["p/a", "p/b"]
        assert page.diagnosis is not None, "it was judged as it was read"
        assert reader.page() == []


def test_the_longest_and_those_of_just_now_by_turns(reader: Reader) -> None:
    reader.overdue(*"abcdefghi", seconds=3600)
    reader.overdue(*"uvwxyz", seconds=5)
    with reader.run():
        assert reader.rest() == [[*"abc"], [*"uvw"], [*"def"], [*"xyz"], [*"ghi"]]


def test_one_page_a_run_and_each_turn_comes(reader: Reader) -> None:
    """However slow pages are: what fell overdue just now does not wait for the end of a storm."""
    reader.overdue(*"abcdefghi", seconds=3600)
    reader.overdue(*"uvwxyz", seconds=5)
    found = []
    for _ in range(5):
        with reader.run():
            found.append(reader.page())
    assert found == [[*"abc"], [*"uvw"], [*"def"], [*"xyz"], [*"ghi"]]


def test_each_run_asks_what_there_is_by_now(reader: Reader) -> None:
    """What the run before had read ahead is read again."""
    reader.overdue(*"abcdefgh", seconds=3600)
    with reader.run():
        assert reader.page() == [*"abc"]
    reader.overdue(*"xy", seconds=60)
    with reader.run():
        assert reader.rest() == [[*"def"], [*"ghx"], ["y"]]


def test_what_could_not_be_read_ahead_is_asked_for_again(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.overdue(*"abcdef", seconds=3600)
    asked = list[int]()

    def lost(size: int) -> Iterator[Read[Decision]]:
        asked.append(size)
        if len(asked) == 1:
            raise StoreError("away")
        yield Read([Decision(id="p/x", actor="add", state=DecisionState.QUEUED)])

    monkeypatch.setattr(reader.scanner._lost, "pages", lost)
    with reader.run():
        reader.page()  # while these were lost
        with pytest.raises(StoreError):
            reader.page()
    with reader.run():
        assert sorted(reader.rest()) == [[*"def"], ["x"]]


def test_a_run_that_failed_half_way_is_begun_anew(reader: Reader) -> None:
    reader.overdue(*"abcdefghijkl", seconds=3600)
    with reader.run():
        assert reader.page() == [*"abc"]
        assert reader.page() == [*"def"]
        reader.store.database.client.admin.command("killAllSessions", [])
        with pytest.raises(StoreError):
            reader.rest()
    with reader.run():
        left = [name for page in reader.rest() for name in page]
    assert left in ([*"jkl"], [*"ghijkl"]), "the page that was read ahead may have been repaired"


def test_where_all_is_of_just_now_nothing_is_in_two_pages(reader: Reader) -> None:
    reader.overdue(*"abcdefghij", seconds=5)
    with reader.run():
        found = reader.rest()
    assert sorted(name for page in found for name in page) == [*"abcdefghij"]


def test_what_lost_its_message_has_its_turn(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.overdue(*"abcdefg", seconds=3600)
    lost = [Decision(id=f"p/{name}", actor="add", state=DecisionState.QUEUED) for name in "xyz"]
    monkeypatch.setattr(reader.scanner._lost, "pages", lambda _: iter([Read(lost[:2]), Read(lost[2:])]))
    with reader.run():
        assert reader.rest() == [[*"abc"], [*"xy"], [*"def"], ["z"], ["g"]]
