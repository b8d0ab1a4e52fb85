"""The table of docs/failure-map.md, made from the catalogue of the rules.

    python -m tests.docs.failure_map      # writes it into docs/failure-map.md

`test_docs` fails while the page is not what this would write.
"""

from __future__ import annotations

from pathlib import Path

from recovery.rules import CATALOGUE, Rule

PAGE = Path(__file__).parents[2] / "docs" / "failure-map.md"
HEAD = "| | What happened | What shows it | What is done | What to look at |\n| --- | --- | --- | --- | --- |\n"


def table() -> str:
    """All rules in the order of the map."""
    rows = [(f"`{rule}`", *_cells(rule)) for rule in Rule]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(rule: Rule) -> tuple[str, ...]:
    told = CATALOGUE[rule]
    return told.happened, told.shown_by, told.done, told.look_at


def page(text: str) -> str:
    """The page with its table made anew."""
    start = text.index(HEAD)
    end = text.index("\n\n", start) + 1
    return text[:start] + table() + text[end:]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
