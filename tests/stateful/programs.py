"""Programs: trees of deciders with fan-outs, joins, chains, loops, delays, errors and limits of time, and what they
come to.

A node is a JSON object, so that it can be an actor's argument:

    id        its number within the program
    own       a number
    actor     the name of the actor that does it
    then      [[child, [places of earlier siblings that it waits for]], …]
    returns   "value": itself and its inputs; "one": what one child comes to; "all": a list of both
    loop      how often it continues itself before it does the above
    later     whether it is delayed once it is ready
    beats     whether it tells that it lives
    away      how often it fails at first for what passes by itself
    raises    "always", or "until mended": ends in an error; "": does not
    fallible  whether its error is a value to those that wait for it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

ANY_ATTEMPT, HOLDER_ONLY, LIMITED, FORCED = ACTORS = ("any_attempt", "holder_only", "limited", "forced")
"""The last two have a time as a whole; that of the last ends even while an attempt runs."""

Schedule = Callable[[Any, list[Any]], Any]
Part = tuple[int, int]
"""What one task does of a program: the node's id, and how often it still continues itself."""


class Raised(Exception):
    """What a node raises; its text names the node."""


def perform(node: Any, inputs: list[Any], schedule: Schedule, raises: bool) -> Any:
    """What an actor does for a node; `raises`: this is how it ends."""
    if raises:
        raise Raised(message(node))
    if node["loop"]:
        return schedule({**node, "loop": node["loop"] - 1}, inputs)
    value = node["own"] + sum(numbers(inputs))
    promises: list[Any] = []
    for child, waits in node["then"]:
        promises.append(schedule(child, [promises[place] for place in waits if place < len(promises)]))
    if not promises or node["returns"] == "value":
        return value
    return promises[-1] if node["returns"] == "one" else [value, *promises]


def evaluate(node: Any, failures: Mapping[Part, str] | None = None) -> Any:
    """What Python makes of a program, without us, if of its fallible nodes these fail: {part: the error's text}."""

    def directly(node: Any, inputs: list[Any]) -> Any:
        if failures and part(node) in failures:
            return {"failed": failures[part(node)]}
        return perform(node, inputs, directly, False)

    return directly(node, [])


def plain(value: Any) -> Any:
    """A process's result, with failures as `evaluate` has them."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {"failed": value["$failure"]["message"]} if isinstance(value, dict) else value


def part(node: Any) -> Part:
    """What a task does that is given this node."""
    return node["id"], node["loop"]


def message(node: Any) -> str:
    """The text of a node's error."""
    return f"node {node['id']}"


def numbered(node: Any, first: int = 0) -> Any:
    """A program with its nodes' ids."""
    then, following = [], first + 1
    for child, waits in node["then"]:
        then.append([numbered(child, following), waits])
        following += size(child)
    return {**node, "id": first, "then": then}


def size(node: Any) -> int:
    """How many nodes there are."""
    return 1 + sum(size(child) for child, _ in node["then"])


def numbers(value: Any) -> list[int]:
    """All numbers in nested lists; a failure counts as -1."""
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value if isinstance(value, int) else -1]


def _node(then: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    rarely = st.integers(0, 9).map(lambda n: n == 9)
    return st.fixed_dictionaries(
        {
            "own": st.integers(0, 99),
            "actor": st.sampled_from([*3 * [ANY_ATTEMPT, HOLDER_ONLY], LIMITED, FORCED]),
            "then": then,
            "returns": st.sampled_from(["all", "one", "value"]),
            "loop": st.sampled_from([0, 0, 0, 2]),
            "later": rarely,
            "beats": rarely,
            "away": st.sampled_from([*8 * [0], 1, 2]),
            "raises": st.sampled_from([*34 * [""], *3 * ["until mended"], *2 * ["always"]]),
            "fallible": st.integers(0, 4).map(lambda n: n == 4),
        }
    )


def _family(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    waits = st.lists(st.integers(0, 2), max_size=2, unique=True)
    free = st.lists(st.tuples(inner, waits).map(list), min_size=1, max_size=3)
    chain = st.lists(inner, min_size=2, max_size=4).map(
        lambda nodes: [[node, [place - 1] if place else []] for place, node in enumerate(nodes)]
    )
    return _node(st.one_of(free, chain))


PROGRAMS: st.SearchStrategy[Any] = _family(st.recursive(_node(st.just([])), _family, max_leaves=4)).map(numbered)
