"""A catalogue by itself: which signs are read from an error, by which an entry knows it, and which catalogue counts."""

from __future__ import annotations

import urllib.error
from email.message import Message
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.retry import GENERIC_ERROR, Catalogue, Catalogues, Classified, Entry, ErrorCode, ErrorMap, classify
from recovery.retry.catalogue import MAX_CAUSES, check_together, find
from recovery.retry.codes import NOT_INDICATED, RETRY_INDICATED
from recovery.retry.reasons import KV_LOCKED, KV_NOT_MY_VBUCKET, UNKNOWN
from recovery.retry.signs import WRITE_CONCERN_ERRORS, Signs, signs_of

LOCKED, BUSY, GONE = ErrorCode(27001, "LOCKED", ""), ErrorCode(27002, "BUSY", ""), ErrorCode(47001, "GONE", "")


def entry(code: ErrorCode = LOCKED, **signs: Any) -> Entry:
    """An entry with these signs: collections, and a pattern."""
    given = {name: sign if isinstance(sign, str) else frozenset(sign) for name, sign in signs.items()}
    return Entry(code, KV_LOCKED, **given)  # type: ignore[arg-type]


def known_by(name: str, code: ErrorCode, **signs: Any) -> Catalogue:
    """A catalogue with one entry."""
    return Catalogue(name, (entry(code, **signs),))


class Fault(Exception):
    """An error that carries what a library keeps in its errors."""

    def __init__(self, **kept: Any) -> None:
        super().__init__("told")
        vars(self).update(kept)


class Kept:
    """Anything that has attributes."""

    def __init__(self, **kept: Any) -> None:
        vars(self).update(kept)


SIGNS = Signs(("shop.Closed", "builtins.Exception"), "it is locked", 7, frozenset({"passes", "late"}), 503)


@pytest.mark.parametrize(
    ("signs", "matches"),
    [
        ({"types": {"builtins.Exception", "shop.Other"}}, True),
        ({"types": {"shop.Other"}}, False),
        ({"numbers": {6, 7}}, True),
        ({"numbers": {6}}, False),
        ({"labels": {"late", "never"}}, True),
        ({"labels": {"never"}}, False),
        ({"statuses": {502, 503}}, True),
        ({"statuses": {502}}, False),
        ({"pattern": "is lock"}, True),
        ({"pattern": "^lock"}, False),
        ({"types": {"shop.Closed"}, "numbers": {7}, "labels": {"late"}, "statuses": {503}, "pattern": "it"}, True),
        ({"types": {"shop.Closed"}, "numbers": {6}}, False),
        ({"types": {"shop.Other"}, "numbers": {7}}, False),
    ],
)
def test_an_entry_matches_if_every_sign_that_it_gives_is_there(signs: dict[str, Any], matches: bool) -> None:
    assert entry(**signs).matches(SIGNS) is matches


@pytest.mark.parametrize(
    "sign", [{"types": {"a.B"}}, {"numbers": {7}}, {"labels": {"x"}}, {"statuses": {503}}, {"pattern": "x"}]
)
def test_one_sign_is_enough_for_an_entry(sign: dict[str, Any]) -> None:
    assert list(known_by("shop", LOCKED, **sign).codes()) == [LOCKED]


def test_an_entry_without_a_sign_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        known_by("shop", LOCKED)
    assert str(raised.value) == (
        "catalogue shop: LOCKED has no sign by which it is recognized; give a type, a number, a label, a status or a "
        "pattern"
    )


def test_two_meanings_of_a_code_in_one_catalogue_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        Catalogue("shop", (entry(pattern="a"), entry(ErrorCode(27001, "OTHER", ""), pattern="b")))
    assert str(raised.value) == "catalogue shop: LOCKED and OTHER have the code 27001; give one of them another"


def test_the_codes_of_a_catalogue_come_once_each_and_those_of_its_error_map_last() -> None:
    entries = (entry(pattern="a"), entry(BUSY, pattern="b"), entry(pattern="c"))
    assert list(Catalogue("shop", entries).codes()) == [LOCKED, BUSY]
    mapped = Catalogue("shop", entries, ErrorMap({}, frozenset({"shop.Closed"})))
    assert list(mapped.codes()) == [LOCKED, BUSY, RETRY_INDICATED, NOT_INDICATED]


def test_the_first_entry_that_matches_counts_and_carries_what_the_server_asks_for() -> None:
    catalogue = Catalogue("shop", (entry(BUSY, pattern="x"), entry(pattern="lock"), entry(GONE, pattern="it")))
    assert find(Signs(text="it is locked", retry_after=9.0), [catalogue]) == Classified(LOCKED, KV_LOCKED, "shop", 9.0)


def test_an_error_map_is_asked_only_for_a_number_of_an_error_of_its_own() -> None:
    catalogue = Catalogue("shop", (), ErrorMap({7: frozenset({"retry-now"})}, frozenset({"shop.Closed"})))
    found = find(Signs(("shop.Closed",), number=7), [catalogue])
    assert found is not None and (found.code, found.catalogue) == (RETRY_INDICATED, "shop")
    assert find(Signs(("shop.Closed",)), [catalogue]) is None
    assert find(Signs(("shop.Other",), number=7), [catalogue]) is None


def test_of_several_catalogues_the_one_counts_that_knows_the_nearest_class_then_the_last() -> None:
    signs = Signs(("shop.Closed", "shop.Base", "builtins.Exception"), "told")
    near, far = known_by("near", LOCKED, types={"shop.Closed", "shop.Base"}), known_by("far", BUSY, types={"shop.Base"})
    by_text, also_near = known_by("text", GONE, pattern="told"), known_by("also near", GONE, types={"shop.Closed"})
    for catalogues, name in [
        ([near, far], "near"),
        ([far, near], "near"),
        ([far, by_text], "far"),
        ([near, also_near, by_text], "also near"),
        ([also_near, near, far], "near"),
    ]:
        found = find(signs, catalogues)
        assert found is not None and found.catalogue == name


def test_what_is_always_retried_is_retriable_whatever_its_code() -> None:
    assert Classified(GONE, KV_NOT_MY_VBUCKET).is_retriable
    assert not Classified(GONE, KV_LOCKED).is_retriable and Classified(LOCKED, KV_LOCKED).is_retriable


def test_catalogues_that_overlap_are_refused_together() -> None:
    with pytest.raises(InputError) as raised:
        check_together([known_by("a", LOCKED, pattern="x"), Catalogue("b", ()), Catalogue("a", ())])
    assert str(raised.value) == "two catalogues are named 'a'; give one of them another name"
    ours = known_by("shop", ErrorCode(40001, "MINE", ""), pattern="x")
    with pytest.raises(InputError) as raised:
        check_together([ours])
    told = "catalogues recovery and shop overlap: 40001 is WORK_TIMEOUT in the one and MINE in the other"
    assert str(raised.value) == told
    known = Catalogues()
    with pytest.raises(InputError, match=told):
        known.add(ours)
    assert known.all == [], "a refused catalogue is not added"


@pytest.mark.parametrize(("depth", "known"), [(MAX_CAUSES - 1, True), (MAX_CAUSES, False)])
def test_so_many_causes_are_looked_at_and_no_more(depth: int, known: bool) -> None:
    error: BaseException = LookupError()
    for _ in range(depth):
        outer = Fault()
        outer.__cause__ = error
        error = outer
    found = classify(error, [known_by("shop", LOCKED, types={"builtins.LookupError"})])
    assert found == (Classified(LOCKED, KV_LOCKED, "shop") if known else Classified(GENERIC_ERROR, UNKNOWN))


@pytest.mark.parametrize(
    ("kept", "status"),
    [
        ({"response": Kept(status_code=429, status=500), "status": 501}, 429),
        ({"response": Kept(status=500), "status": 501}, 500),
        ({"status": 501}, 501),
        ({"response": Kept(status_code="429", status=True), "status": 99}, None),
        ({"status": 100}, 100),
        ({"status": 599}, 599),
        ({"status": 600}, None),
        ({"code": 503}, None),
        ({}, None),
    ],
)
def test_a_status_is_read_from_the_answer_or_the_error(kept: dict[str, Any], status: int | None) -> None:
    assert signs_of(Fault(**kept)).status == status


def test_urllib_keeps_its_status_as_a_code() -> None:
    def status_of(code: int) -> int | None:
        return signs_of(urllib.error.HTTPError("http://h/", code, "no", Message(), None)).status

    assert (status_of(503), status_of(7)) == (503, None)


@pytest.mark.parametrize(
    ("kept", "number"),
    [
        ({"code": 7}, 7),
        ({"errno": 5, "code": 7}, 5),
        ({"errno": "5", "code": 7}, 7),
        ({"code": True}, None),
        ({"details": {"code": 8}}, 8),
        ({"code": 7, "details": {"code": 8}}, 7),
        ({"code": 7, "details": {"writeErrors": [3, {"code": 9}, {"code": 10}]}}, 9),
        ({"code": 7, "details": {"writeErrors": []}}, 7),
        ({"details": {"writeConcernError": {"code": 64}}}, 64),
        ({"details": {"code": 8, "writeConcernError": {"code": 64}}}, 8),
        ({"details": [8]}, None),
    ],
)
def test_a_number_is_read_from_where_it_says_most(kept: dict[str, Any], number: int | None) -> None:
    assert signs_of(Fault(**kept)).number == number


@pytest.mark.parametrize(
    ("details", "unconfirmed"),
    [
        ({"writeErrors": [], "writeConcernErrors": [{"code": 64}]}, True),
        ({"writeErrors": [{"code": 7}], "writeConcernErrors": []}, False),
        ({"writeErrors": ({"code": 7},)}, False),
        ({"writeConcernError": {"code": 64}}, True),
        ({"writeConcernError": None}, False),
        ({"code": 7, "writeConcernError": {"code": 64}}, False),
        ("writeErrors", False),
    ],
)
def test_a_write_that_was_not_confirmed_has_our_label(details: object, unconfirmed: bool) -> None:
    labels = signs_of(Fault(details=details, _error_labels=["theirs"])).labels
    assert labels == ({"theirs", WRITE_CONCERN_ERRORS} if unconfirmed else {"theirs"})


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple])
def test_labels_are_the_texts_of_a_collection(kind: type) -> None:
    assert signs_of(Fault(_error_labels=kind(["a", 7, "b"]))).labels == {"a", "b"}
    assert signs_of(Fault(_error_labels="ab")).labels == frozenset()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0), ("120", 120.0), (1.5, 1.5), ("-1", None), ("soon", None), ("nan", None), (None, None),
        ("31535999", 31_535_999.0), ("31536000", None),
    ],
)  # fmt: skip
def test_a_server_may_ask_to_wait_for_less_than_a_year(value: object, seconds: float | None) -> None:
    assert signs_of(Fault(headers={"Retry-After": value})).retry_after == seconds
    assert signs_of(Fault(headers={"retry-after": value})).retry_after == seconds


@pytest.mark.parametrize(
    ("date", "seconds"),
    [("Sun, 29 Nov 2026 12:00:00 GMT", 90.0), ("Sun, 29 Nov 2026 13:00:00 GMT", 0.0), (None, None), ("now", None)],
)
def test_a_date_is_compared_with_the_answers_own(date: str | None, seconds: float | None) -> None:
    headers = {"Retry-After": "Sun, 29 Nov 2026 12:01:30 GMT"} | ({"Date": date} if date else {})
    assert signs_of(Fault(headers=headers)).retry_after == seconds


def test_what_the_answer_asks_for_counts_before_what_the_error_asks_for() -> None:
    def asked(answered: str) -> float | None:
        return signs_of(
            Fault(response=Kept(headers={"Retry-After": answered}), headers={"Retry-After": "5"})
        ).retry_after

    assert (asked("3"), asked("0"), asked("soon")) == (3.0, 0.0, 5.0)


def test_an_error_is_known_by_its_text_and_by_the_full_names_of_its_classes() -> None:
    signs = signs_of(Fault())
    assert signs == Signs((f"{__name__}.Fault", "builtins.Exception", "builtins.BaseException"), "told")
