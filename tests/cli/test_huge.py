"""Numbers that MongoDB can't have, in whatever takes a number: one message that names it, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command import recovery, refused
from tests.cli.every import COMMANDS, ELSEWHERE, SERVERS, all_commands
from tests.emptied import Kept

HUGE = str(2**63)
"""The first that has no room in 64 bits."""
ENDLESS = "9" * 4000


def takes_whole_number(param: Any) -> bool:
    return getattr(param.type_descriptor, "annotation", None) in (int, int | None)


def numbers() -> Iterator[Any]:
    """A line for each whole number that a command takes, with a huge one."""
    commands = {name: one for name, one in all_commands().items() if name not in ELSEWHERE | SERVERS}
    for name, command in commands.items():
        line = next(line for key, line in COMMANDS.items() if key.partition(" --")[0] == name)
        for param in filter(takes_whole_number, command.params):
            is_option = param.opts[0].startswith("-")
            words = [*line, param.opts[0], HUGE] if is_option else [*name.split(), HUGE, *line[3:]]
            yield pytest.param(words, id=f"{name} {param.opts[0]}")


@pytest.mark.parametrize("words", [*numbers()])
def test_whole_numbers(words: list[str], env: dict[str, str], kept: Kept) -> None:
    done = recovery(*words, env=env)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode == 2:
        assert HUGE in done.stderr or words[-2] in done.stderr, "named"
        assert kept.changed() in ([], ["auditLog"])


def test_they_are_found() -> None:
    found = {one.id for one in numbers()}
    assert {"audit --operation", "operation show number", "operation report --limit", "broken abort --limit"} <= found


@pytest.mark.parametrize("number", [HUGE, ENDLESS], ids=["huge", "endless"])
def test_an_operation_that_there_can_not_be(number: str, env: dict[str, str]) -> None:
    for line in (["show"], ["apply"], ["pause"], ["cancel", "--reason", "x"], ["report"]):
        said = refused("operation", line[0], number, *line[1:], env=env)
        assert f"no operation has the number {number[:50]}" in said and "the last one is 4" in said
    assert "Invalid value for '--operation'" in refused("audit", "--operation", number, env=env)


@pytest.mark.parametrize("priority", [HUGE, f"-{HUGE}", "1000000001", ENDLESS, "1e3"], ids=lambda one: one[:12])
def test_a_priority_that_can_not_be(priority: str, env: dict[str, str], kept: Kept) -> None:
    start = ("operation", "start", "check", "--all", "--reason", "x", "--priority", f"order={priority}")
    said = refused(*start, env=env)
    assert f"priority order={priority[:50]}" in said.replace("'", "")
    assert "give a whole number from -1,000,000,000 to 1,000,000,000; others have 0" in said
    assert not kept.changed()
