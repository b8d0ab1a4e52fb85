"""Programs: trees of deciders with fan-outs, joins, chains, loops, delays and errors, and what they come to.

A node is a JSON object, so that it can be an actor's argument:

    own       a number
    actor     the name of the actor that does it
    then      [[child, [places of earlier siblings that it waits for]], …]
    returns   "value": itself and its inputs; "one": what one child comes to; "all": a list of both
    loop      how often it continues itself before it does the above
    later     whether it is delayed once it is ready
    beats     whether it tells that it lives
    raises    whether it ends in an error
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

ANY_ATTEMPT, HOLDER_ONLY = ACTORS = ("any_attempt", "holder_only")

Schedule = Callable[[Any, list[Any]], Any]


class Raised(Exception):
    """What a node raises; its text names the node."""


def perform(node: Any, inputs: list[Any], schedule: Schedule) -> Any:
    """What an actor does for a node."""
    if node["raises"]:
        raise Raised(f"node {node['own']}")
    if node["loop"]:
        return schedule({**node, "loop": node["loop"] - 1}, inputs)
    value = node["own"] + sum(numbers(inputs))
    promises: list[Any] = []
    for child, waits in node["then"]:
        promises.append(schedule(child, [promises[place] for place in waits if place < len(promises)]))
    if not promises or node["returns"] == "value":
        return value
    return promises[-1] if node["returns"] == "one" else [value, *promises]


def evaluate(node: Any) -> Any:
    """What Python makes of a program, without us. Raises Raised if any node of it does."""

    def directly(node: Any, inputs: list[Any]) -> Any:
        return perform(node, inputs, directly)

    return directly(node, [])


def errors(node: Any) -> set[str]:
    """Texts of the errors that a program can end in; if there is one, it does not end well."""
    inner = set[str]().union(*(errors(child) for child, _ in node["then"]))
    return inner | {f"node {node['own']}"} if node["raises"] else inner


def numbers(value: Any) -> list[int]:
    """All numbers in nested lists."""
    return [n for item in value for n in numbers(item)] if isinstance(value, list) else [value]


def _node(then: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    rarely = st.integers(0, 9).map(lambda n: n == 9)
    return st.fixed_dictionaries(
        {
            "own": st.integers(0, 99),
            "actor": st.sampled_from(ACTORS),
            "then": then,
            "returns": st.sampled_from(["all", "one", "value"]),
            "loop": st.sampled_from([0, 0, 0, 2]),
            "later": rarely,
            "beats": rarely,
            "raises": st.integers(0, 39).map(lambda n: n == 39),
        }
    )


def _family(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    waits = st.lists(st.integers(0, 2), max_size=2, unique=True)
    free = st.lists(st.tuples(inner, waits).map(list), min_size=1, max_size=3)
    chain = st.lists(inner, min_size=2, max_size=4).map(
        lambda nodes: [[node, [place - 1] if place else []] for place, node in enumerate(nodes)]
    )
    return _node(st.one_of(free, chain))


PROGRAMS: st.SearchStrategy[Any] = _family(st.recursive(_node(st.just([])), _family, max_leaves=4))
