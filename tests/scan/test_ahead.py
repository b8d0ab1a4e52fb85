"""Pages are read ahead, and shared: each record is in one page, whoever scans beside and whatever goes on meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from recovery.scan.ahead import NOT_KNOWN, Judge, ReadAhead

from recovery.engine import Resources
from recovery.errors import StoreError
from recovery.queue.coordination import SCANNING_KEY, Places
from recovery.records import Decision, DecisionState
from recovery.repair import Diagnosis
from recovery.rules import Surroundings
from recovery.scan.scanner import Page
from recovery.settings import Settings
from recovery.stack.server_process import HOST, free_port
from recovery.store import layout
from recovery.store.lifecycle.decision_queries import ALL, Share, is_within
from recovery.store.record_reading import Read
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.scan.making import made_at, step_of
from tests.store.writing import put

SIZE = 3


@pytest.fixture
def resources(emptied: Settings) -> Resources:
    made = Resources.connect(emptied)
    layout.create(made.store.database)
    return made


def overdue(resources: Resources, *names: str, seconds: float) -> None:
    """Working tasks, the first of which fell overdue so long ago; each other a millisecond later."""
    first = resources.store.now() - timedelta(seconds=seconds)
    put(resources.store, *(
        Decision(
            id=f"p/{name}", actor="add", state=DecisionState.WORKING, pass_key="k", worker="w#1",
            recovery_time=first + timedelta(milliseconds=number),
        )
        for number, name in enumerate(names)
    ))  # fmt: skip


def nothing(resources: Resources) -> Judge:
    """Nothing is wrong with any."""
    return lambda _: Diagnosis([], Surroundings(resources.store.now()))


def reader(resources: Resources, *lost: Read[Decision], name: str = "one") -> ReadAhead:
    found = iter(lost)
    return ReadAhead(resources, nothing(resources), lambda *_: found, name)


def names(page: Page[Decision]) -> list[str]:
    return [decision.id.removeprefix("p/") for decision in page.items]


def repair(resources: Resources, page: Page[Decision]) -> None:
    """As a scanner does: it is not overdue any more."""
    later = {"recoveryTime": resources.store.now() + timedelta(days=1)}
    resources.store.database["decisions"].update_many({"_id": {"$in": [one.id for one in page.items]}}, {"$set": later})


def all_of(resources: Resources, pages: ReadAhead) -> list[list[str]]:
    found = []
    while page := pages.page():
        found.append(names(page))
        repair(resources, page)
        if not page.more:
            break
    return found


def test_one_page_is_read_once_and_shared_with_nobody(resources: Resources) -> None:
    overdue(resources, "a", "b", seconds=3600)
    pages = reader(resources)
    with pages.run(SIZE):
        page = pages.page()
        assert (names(page), page.more, page.diagnosis is not None) == (["a", "b"], True, True)
        assert not resources.broker._redis.exists(SCANNING_KEY)
        assert names(pages.page()) == []


def test_the_longest_and_those_of_just_now_by_turns(resources: Resources) -> None:
    overdue(resources, *"abcdefghi", seconds=3600)
    overdue(resources, *"uvwxyz", seconds=5)
    pages = reader(resources)
    with pages.run(SIZE):
        assert all_of(resources, pages) == [[*"abc"], [*"uvw"], [*"def"], [*"xyz"], [*"ghi"]]


def test_one_page_a_run_and_each_turn_comes(resources: Resources) -> None:
    """However slow pages are: what fell overdue just now does not wait for the end of a storm."""
    overdue(resources, *"abcdefghi", seconds=3600)
    overdue(resources, *"uvwxyz", seconds=5)
    pages, found = reader(resources), []
    for _ in range(5):
        with pages.run(SIZE):
            page = pages.page()
            found.append(names(page))
            repair(resources, page)
    assert found == [[*"abc"], [*"uvw"], [*"def"], [*"xyz"], [*"ghi"]]


def test_a_run_goes_on_with_the_answer_that_the_one_before_had(resources: Resources) -> None:
    """The server does not go again through all that was overdue; what became so meanwhile comes when that is done."""
    overdue(resources, *"defghijkl", seconds=3600)
    pages = reader(resources)
    with pages.run(SIZE):
        first = names(pages.page())
    overdue(resources, *"abc", seconds=7200)
    with pages.run(SIZE):
        rest = all_of(resources, pages)
    assert (first, rest) == ([*"def"], [[*"ghi"], [*"jkl"], [*"abc"], [*"def"]])


def test_what_was_read_ahead_is_judged_again_in_the_next_run(resources: Resources) -> None:
    overdue(resources, *"abcdef", seconds=3600)
    judged = list[tuple[list[str], Diagnosis]]()

    def judge(page: Page[Decision]) -> Diagnosis:
        judged.append((names(page), Diagnosis([], Surroundings(resources.store.now()))))
        return judged[-1][1]

    pages = ReadAhead(resources, judge, lambda *_: iter(()), "one")
    with pages.run(SIZE):
        pages.page()
    with pages.run(SIZE):
        page = pages.page()
    assert [who for who, _ in judged[:3]] == [[*"abc"], [*"def"], [*"def"]]
    assert (names(page), page.diagnosis) == ([*"def"], judged[2][1])


def test_each_run_asks_what_there_is_by_now(resources: Resources) -> None:
    """Even if the page that was read ahead was the last of what the run before had asked for."""
    overdue(resources, *"abcd", seconds=3600)
    pages = reader(resources)
    with pages.run(SIZE):
        repair(resources, pages.page())
    overdue(resources, *"xy", seconds=60)
    with pages.run(SIZE):
        assert all_of(resources, pages) == [["d"], [*"xy"]]


def test_what_could_not_be_read_ahead_is_asked_for_again(resources: Resources) -> None:
    overdue(resources, *"abcdef", seconds=3600)
    asked = list[int]()

    def lost(size: int, _: Callable[[], Share]) -> Iterator[Read[Decision]]:
        asked.append(size)
        if len(asked) == 1:
            raise StoreError("away")
        yield Read([Decision(id="p/x", actor="add", state=DecisionState.QUEUED)])

    pages = ReadAhead(resources, nothing(resources), lost, "one")
    with pages.run(SIZE):
        repair(resources, pages.page())  # while these were lost
    with pages.run(SIZE):
        assert all_of(resources, pages) == [[*"def"], ["x"]]


@pytest.mark.parametrize("how", ["its end", "an error", "the server forgot"])
def test_it_begins_anew_after(resources: Resources, how: str) -> None:
    overdue(resources, *"abcdefghi", seconds=3600)
    pages = reader(resources)
    with suppress(ZeroDivisionError), pages.run(SIZE):
        assert names(pages.page()) == [*"abc"]
        if how == "an error":
            1 / 0  # noqa: B018
    if how == "its end":
        pages.end()
    elif how == "the server forgot":
        resources.store.database.client.admin.command("killAllSessions", [])
        with pytest.raises(StoreError), pages.run(SIZE):
            all_of(resources, pages)
    left = [[*"abc"], [*"ghi"]] if how == "the server forgot" else [[*"abc"], [*"def"], [*"ghi"]]
    with pages.run(SIZE):
        assert all_of(resources, pages) == left


def test_where_all_is_of_just_now_nothing_is_in_two_pages(resources: Resources) -> None:
    overdue(resources, *"abcdefghij", seconds=5)
    pages = reader(resources)
    with pages.run(SIZE):
        found = all_of(resources, pages)
    assert sorted(name for page in found for name in page) == [*"abcdefghij"]


def test_what_lost_its_message_has_its_turn(resources: Resources) -> None:
    overdue(resources, *"abcdefg", seconds=3600)
    lost = [Decision(id=f"p/{name}", actor="add", state=DecisionState.QUEUED) for name in "xyz"]
    pages = reader(resources, Read(lost[:2]), Read(lost[2:]))
    with pages.run(SIZE):
        found = all_of(resources, pages)
    assert found == [[*"abc"], [*"xy"], [*"def"], ["z"], ["g"]]


def by_digit(page: Page[Decision]) -> list[str]:
    return [step_of(decision.process_id) for decision in page.items]


@pytest.mark.parametrize("known", [False, True], ids=["found out", "known from the run before"])
def test_who_scans_beside_has_a_share(resources: Resources, known: bool) -> None:
    first = resources.store.now() - timedelta(hours=1)
    put(resources.store, *(
        Decision(
            id=made_at(digit, task), actor="add", state=DecisionState.WORKING, pass_key="k", worker="w#1",
            recovery_time=first,
        )
        for task in "xy" for digit in "0123456789abcdef"
    ))  # fmt: skip
    one, other = reader(resources, name="a"), reader(resources, name="b")
    if known:
        one.share = other.share = NOT_KNOWN
    with one.run(SIZE), other.run(SIZE):
        pages: list[list[list[str]]] = [[], []]
        for _ in range(12):
            for place, either in enumerate([one, other]):
                if page := either.page():
                    pages[place].append(by_digit(page))
                    repair(resources, page)
        assert {digit for page in pages[1] for digit in page} == {*"13579bdf"}, "from its first page on"
        if known:
            assert sum(map(len, pages[0] + pages[1])) <= 32 + SIZE, "the first did not know of the other, for a page"
        assert not one.is_alone or not other.is_alone
    assert next(resources.store.decisions.overdue_pages(1), None) is None


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17])
def test_all_is_in_one_share_wherever_it_is_asked(resources: Resources, count: int) -> None:
    ids = [made_at(digit, "x") for digit in "0123456789abcdef"]
    first = resources.store.now() - timedelta(hours=1)
    put(resources.store, *(
        Decision(id=key, actor="add", state=DecisionState.WORKING, pass_key="k", worker="w#1", recovery_time=first)
        for key in [*ids, "of another form"]
    ))  # fmt: skip
    shares = list[set[str]]()
    for place in range(count):
        found = next(resources.store.decisions.overdue_pages(100, share=(place, count)))
        shares.append({one.id for one in found.records})
        assert shares[-1] == {key for key in [*ids, "of another form"] if is_within((place, count), key)}
    assert all("of another form" in share for share in shares)
    seen = Counter(key for share in shares for key in share)
    assert {key for key in ids if seen[key] != 1} == ({ids[0]} if count == 17 else set()), (
        "the seventeenth helps the first"
    )


def test_what_lost_its_message_is_shared_as_well(resources: Resources) -> None:
    """Even where nothing is overdue, so that only of these there is more than a page; begun anew once it is known who
    scans beside."""
    began: list[Share] = []
    tasks = [Decision(id=f"p/{number}", actor="add", state=DecisionState.QUEUED) for number in range(3 * SIZE)]
    left = [tasks[first : first + SIZE] for first in range(0, len(tasks), SIZE)]

    def lost(_: int, share: Callable[[], Share]) -> Iterator[Read[Decision]]:
        began.append(share())
        while left:
            yield Read(left.pop(0))

    Places(resources.settings.broker_url).take("another")
    pages = ReadAhead(resources, nothing(resources), lost, "one")
    with pages.run(SIZE):
        found = [name for page in all_of(resources, pages) for name in page]
    assert found == [str(number) for number in range(3 * SIZE)]
    assert began == [ALL, (1, 2)]


def test_where_redis_is_away_nothing_is_shared(resources: Resources) -> None:
    overdue(resources, *"abcdefg", seconds=3600)
    pages = reader(resources)
    with pages.run(SIZE):
        pages._places = Places(f"redis://{HOST}:{free_port()}/0")
        assert all_of(resources, pages) == [[*"abc"], [*"def"], [*"g"]]
