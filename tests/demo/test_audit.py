"""Made-up ledgers: each defect is told, and what only looks like one is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recovery.demo.audit import COLLECT, RunRecord, audit
from recovery.demo.ledger import Line

PARENTS = {"a": (), "b": ("a",), "c": ("a",)}
"""a → b, a → c; b and c are collected."""

A = Line("p", "1", "a", "na", {})
B = Line("p", "2", "b", "nb", {"a": "na"})
C = Line("p", "3", "c", "nc", {"a": "na"})
FINAL = Line("p", "4", "", "nf", {"b": "nb", "c": "nc"}, final=True)
RESULT = {"nonce": "nf", "leaves": {"b": "nb", "c": "nc"}, "count": 2}


STORED = {"1": {"nonce": "na"}, "2": {"nonce": "nb"}, "3": {"nonce": "nc"}, "4": RESULT}


def judge(lines: list[Line], *results: Any, stored: Mapping[str, Any] | None = None) -> tuple[set[str], set[str]]:
    """The tasks that were lost, and those accepted twice."""
    found = audit(lines, [RunRecord("p", PARENTS, results, stored)])
    assert all(process == "p" for process, _ in [*found.lost, *found.accepted_twice])
    return {task for _, task in found.lost}, {task for _, task in found.accepted_twice}


def test_all_well() -> None:
    assert judge([A, B, C, FINAL], RESULT, RESULT) == (set(), set())
    assert audit([A, B, C, FINAL], [RunRecord("p", PARENTS, (RESULT,))]).executions == 3


def test_executions_that_nobody_used_are_well() -> None:
    """Killed after its line, or late: run again, counted, and no defect."""
    late = [replace(A, nonce="other"), replace(B, nonce="other"), replace(FINAL, nonce="other")]
    assert judge([*late, A, B, C, FINAL], RESULT) == (set(), set())
    assert audit([*late, A, B, C, FINAL], [RunRecord("p", PARENTS, (RESULT,))]).executions == 5


def test_a_process_that_has_not_ended_is_not_lost() -> None:
    assert judge([A, B]) == (set(), set())
    assert judge([]) == (set(), set())


def test_other_processes_do_not_matter() -> None:
    lines = [replace(line, process=process) for process in ("p", "q") for line in (A, B, C, FINAL)]
    both = [RunRecord("p", PARENTS, (RESULT,)), RunRecord("q", PARENTS, (RESULT,))]
    found = audit(lines, both)
    assert (found.lost, found.accepted_twice, found.executions) == ({}, {}, 6)
    assert {process for process, _ in audit(lines[:4], both).lost} == {"q"}


@pytest.mark.parametrize("result", [None, {}, [], "text", {"nonce": 1, "leaves": {}}, {"nonce": "nf"}])
def test_a_result_that_is_none_of_ours(result: Any) -> None:
    assert judge([A, B, C, FINAL], result) == ({COLLECT}, set())


class TestLost:
    def test_no_execution(self) -> None:
        assert "a" in judge([B, C, FINAL], RESULT)[0]
        assert judge([A, B, C], RESULT)[0] == {COLLECT}

    def test_a_value_that_no_execution_made(self) -> None:
        assert judge([replace(A, nonce="other"), B, C, FINAL], RESULT) == ({"a"}, set())

    def test_a_value_that_no_execution_made_in_a_process_that_goes_on(self) -> None:
        assert judge([B]) == ({"a"}, set())

    def test_a_parent_was_not_seen(self) -> None:
        assert judge([A, replace(B, seen={}), C, FINAL], RESULT) == ({"a"}, set())

    def test_a_leaf_was_not_collected(self) -> None:
        final, result = replace(FINAL, seen={"b": "nb"}), RESULT | {"leaves": {"b": "nb"}}
        assert judge([A, B, C, final], result) == ({"c"}, set())

    def test_what_was_seen_is_no_parent(self) -> None:
        assert judge([A, B, replace(C, seen={"a": "na", "b": "nb"}), FINAL], RESULT) == ({"b"}, set())

    def test_the_stored_result_is_of_no_execution(self) -> None:
        assert judge([A, B, C, FINAL], RESULT | {"nonce": "other"}) == ({COLLECT}, set())

    def test_the_stored_result_is_not_what_was_collected(self) -> None:
        lost, twice = judge([A, B, replace(B, nonce="other"), C, FINAL], RESULT | {"leaves": {"b": "other", "c": "nc"}})
        assert (lost, twice) == ({COLLECT}, {"b"})


class TestAcceptedTwice:
    def test_two_children_saw_different_results(self) -> None:
        other = replace(A, nonce="other")
        assert judge([A, other, B, replace(C, seen={"a": "other"}), FINAL], RESULT) == (set(), {"a"})

    def test_in_a_process_that_goes_on(self) -> None:
        other = replace(A, nonce="other")
        assert judge([A, other, B, replace(C, seen={"a": "other"})]) == (set(), {"a"})

    def test_two_attempts_of_one_child_saw_different_results(self) -> None:
        other, again = replace(A, nonce="other"), replace(B, nonce="again", seen={"a": "other"})
        assert judge([A, other, B, again, C, FINAL], RESULT) == (set(), {"a"})

    def test_two_collections_saw_different_results(self) -> None:
        other, again = replace(B, nonce="other"), replace(FINAL, nonce="again", seen={"b": "other", "c": "nc"})
        assert judge([A, B, other, C, FINAL, again], RESULT) == (set(), {"b"})

    def test_the_result_was_replaced(self) -> None:
        again = replace(FINAL, nonce="again")
        assert judge([A, B, C, FINAL, again], RESULT, RESULT | {"nonce": "again"}) == (set(), {COLLECT})

    def test_a_task_was_made_twice(self) -> None:
        assert judge([A, B, replace(B, id="5", nonce="other"), C, FINAL], RESULT) == (set(), {"b"})

    def test_the_collecting_task_was_made_twice(self) -> None:
        assert judge([A, B, C, FINAL, replace(FINAL, id="5", nonce="other")], RESULT) == (set(), {COLLECT})


class TestStored:
    """What was seen to be accepted is held against what is stored when all is over."""

    def test_all_well(self) -> None:
        late = [replace(A, nonce="other"), replace(FINAL, nonce="other")]
        assert judge([*late, A, B, C, FINAL], RESULT, stored=STORED) == (set(), set())

    def test_what_goes_on_has_what_was_used(self) -> None:
        assert judge([A, B], stored={"1": STORED["1"]}) == (set(), set())
        assert judge([A], stored={}) == (set(), set())

    @pytest.mark.parametrize("results", [(), (RESULT,)])
    def test_an_accepted_result_was_erased(self, results: tuple[Any, ...]) -> None:
        left = {task: value for task, value in STORED.items() if task != "1"}
        assert judge([A, B, C, FINAL], *results, stored=left) == ({"a"}, set())

    def test_it_was_erased_and_made_anew(self) -> None:
        again = replace(A, nonce="again")
        assert judge([A, B, C, FINAL, again], RESULT, stored=STORED | {"1": {"nonce": "again"}}) == (set(), {"a"})

    def test_the_last_result_was_overwritten(self) -> None:
        late = replace(FINAL, nonce="late")
        assert judge([A, B, C, FINAL, late], RESULT, stored=STORED | {"4": {"nonce": "late"}}) == (set(), {COLLECT})

    @pytest.mark.parametrize("value", [None, {"nonce": "other"}, {}, [], "text"])
    def test_what_is_stored_was_made_by_nobody(self, value: Any) -> None:
        assert judge([A, B, C, FINAL], RESULT, stored=STORED | {"1": value})[0] == {"a"}

    def test_a_leaf_was_overwritten_before_it_was_used(self) -> None:
        """Nobody but who read it in between knows of the first."""
        late = replace(A, nonce="late")
        lines = [A, late, replace(B, seen={"a": "late"}), replace(C, seen={"a": "late"}), FINAL]
        accepted = {"1": [{"nonce": "na"}, {"nonce": "late"}]}
        ran = RunRecord("p", PARENTS, (RESULT,), STORED | {"1": {"nonce": "late"}}, accepted)
        assert set(audit(lines, [ran]).accepted_twice) == {("p", "a")}

    def test_nothing_was_used_and_a_finished_process_lacks_it(self) -> None:
        assert judge([FINAL], RESULT, stored={})[0] >= {"b", "c", COLLECT}
