"""Every state that a model can come to, and whether each is right and can come to an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

W = TypeVar("W")

Step = tuple[Any, W, bool]
"""What happens, the world after it, and whether that is a fault: not to be counted on."""
Reached = dict[W, tuple[W, Any] | None]
"""{state: the one before, and what happened there}"""


def explore(
    start: W,
    steps: Callable[[W], Iterable[Step[W]]],
    *,
    wrong: Callable[[W], str],
    is_over: Callable[[W], bool],
    alike: Callable[[W], W] = lambda world: world,
) -> Reached[W]:
    """All states; `alike` gives the one that stands for a state. Raises AssertionError with the way to one in which
    something is `wrong`, or from which no end can be reached without a further fault."""
    seen: Reached[W] = {start: None}
    before: dict[W, list[W]] = {start: []}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        if what := wrong(world):
            raise AssertionError(f"{what}:\n{way(seen, world)}")
        for label, changed, fault in steps(world):
            following = alike(changed)
            if following not in seen:
                seen[following] = (world, label)
                before[following] = []
                waiting.append(following)
            if not fault:
                before[following].append(world)
    good = {world for world in seen if is_over(world)}
    left = deque(good)
    while left:
        for world in before[left.popleft()]:
            if world not in good:
                good.add(world)
                left.append(world)
    stuck = next((world for world in seen if world not in good), None)
    if stuck is not None:
        raise AssertionError(f"stuck:\n{way(seen, stuck)}")
    return seen


def way(seen: Mapping[W, tuple[W, Any] | None], world: W) -> str:
    """How a state was reached."""
    lines = []
    while (came := seen[world]) is not None:
        lines.append(f"{came[1]}  ->  {world}")
        world = came[0]
    return "\n".join(reversed(lines))
