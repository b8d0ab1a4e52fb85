"""What pages, help texts and messages have readers type is what the command takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT
from tests.docs.command_lines import mentioned, parse, typed, unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_a_page_can_be_typed(page: Path) -> None:
    for words in typed(page):
        try:
            parse(words)
        except SystemExit as end:  # it has shown its help
            assert end.code == 0, words
        except Exception as error:
            raise AssertionError(f"{page.name}: recovery {' '.join(words)}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_what_there_is(page: Path) -> None:
    for words in mentioned(page.read_text()):
        assert not unknown(words), f"{page.name}: recovery {' '.join(words)}"


def test_messages_name_what_there_is() -> None:
    for source in (ROOT / "recovery").rglob("*.py"):
        for words in mentioned(source.read_text()):
            assert not unknown(words), f"{source}: recovery {' '.join(words)}"


def test_lines_are_found() -> None:
    assert sum(len(list(typed(page))) for page in PAGES) > 100
    ways = [["search", "save", "--json"], ["search", "list", "--json"]]
    assert list(mentioned("so: `recovery search save|\n  list --json`")) == ways


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("operation apply 12 --rate 5", "--rate"),
        ("operation applied 12", "applied"),
        ("check", "process_id"),
        ("audit --limit some", "integer"),
        ("--nosuch", "--nosuch"),
    ],
)
def test_what_can_not_be_typed_is_seen(line: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        parse(line.split())


def test_what_there_is_not_is_seen() -> None:
    assert unknown(["operation", "apply", "12", "--rate=5", "…"]) == ["--rate"]
    assert unknown(["operation", "applied"]) == ["'applied'"]
