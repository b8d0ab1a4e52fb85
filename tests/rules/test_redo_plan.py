"""What is done again with a task: all that comes of its result, and nothing else."""

from __future__ import annotations

import pytest

from recovery.rules.redo_plan import Link, redo_of

# A diamond: `start` schedules the others; `left` and `right` wait for `first`, `last` for both.
DIAMOND = {
    "start": Link(),
    "first": Link("start"),
    "left": Link("start", ("first",)),
    "right": Link("start", ("first",)),
    "last": Link("start", ("left", "right")),
}


@pytest.mark.parametrize(
    ("roots", "again"),
    [
        (["last"], {"last"}),
        (["left"], {"left", "last"}),
        (["first"], {"first", "left", "right", "last"}),
        (["left", "right"], {"left", "right", "last"}),
    ],
)
def test_what_waits_for_a_result_is_done_again_and_what_scheduled_it_is_kept(roots: list[str], again: set[str]) -> None:
    redo = redo_of(roots, DIAMOND)
    assert (redo.again, redo.dropped) == (again, ())


def test_what_a_redone_task_scheduled_is_dropped_the_deepest_first() -> None:
    links = {
        "start": Link(),
        "b": Link("start"),
        "a": Link("start"),
        "a1": Link("a"),
        "a2": Link("a1"),
    }
    redo = redo_of(["start"], links)
    assert (redo.again, redo.dropped) == ({"start"}, ("a2", "a1", "a", "b"))


def test_a_task_that_is_to_be_done_again_is_dropped_if_its_parent_is_done_again() -> None:
    links = {"start": Link(), "child": Link("start"), "grandchild": Link("child")}
    for roots in (["start", "child"], ["child", "start"], ["grandchild", "child", "start"]):
        redo = redo_of(roots, links)
        assert (redo.again, redo.dropped) == ({"start"}, ("grandchild", "child")), roots


def test_who_waits_for_a_promised_child_is_done_again_with_it() -> None:
    """`sum` waits for `split`, whose value promises `part`, whose value promises `leaf`."""
    links = {
        "start": Link(),
        "split": Link("start", waits=("part",)),
        "part": Link("split", waits=("leaf",)),
        "leaf": Link("part"),
        "sum": Link("start", ("split",)),
        "other": Link("start"),
    }
    assert redo_of(["leaf"], links) == redo_of(["leaf", "sum"], links)
    redo = redo_of(["leaf"], links)
    assert (redo.again, redo.dropped) == ({"leaf", "sum"}, ())
    redo = redo_of(["split"], links)
    assert (redo.again, redo.dropped) == ({"split", "sum"}, ("leaf", "part"))


def test_who_waits_for_a_dropped_task_is_done_again_and_what_it_scheduled_is_dropped() -> None:
    links = {
        "start": Link(),
        "maker": Link("start"),
        "made": Link("maker"),
        "user": Link("start", ("made",)),
        "users_child": Link("user"),
    }
    redo = redo_of(["maker"], links)
    assert (redo.again, redo.dropped) == ({"maker", "user"}, ("made", "users_child"))


def test_a_child_stays_dropped_though_it_waits_for_a_task_that_is_done_again() -> None:
    links = {"start": Link(), "one": Link("start"), "two": Link("start", ("one",))}
    redo = redo_of(["start"], links)
    assert (redo.again, redo.dropped) == ({"start"}, ("one", "two"))


def test_dependencies_that_nobody_knows_and_promises_in_a_circle_end() -> None:
    links = {"start": Link(), "a": Link("start", ("gone", "b"), ("b",)), "b": Link("start", (), ("a",))}
    assert redo_of(["b"], links).again == {"a", "b"}
    assert redo_of(["gone"], links).again == {"gone", "a"}
