"""What stands in the fenced blocks of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "examples").glob("*.md")])

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A command and what it prints."""

    command: str
    output: tuple[str, ...]


def blocks(page: Path, language: str) -> list[str]:
    """The texts of the page's blocks in this language, in order."""
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def module(page: Path) -> str:
    """The application that a page builds up: its Python but for what is named as another file's."""
    return "\n\n".join(text for text in blocks(page, "python") if not text.startswith("# client.py"))


def starts(page: Path) -> list[Example]:
    """The page's `recovery start` commands whose result is waited for and shown."""
    examples = []
    for block in blocks(page, "console"):
        for part in block.split("$ ")[1:]:
            command, *output = part.splitlines()
            if command.startswith("recovery start ") and " --wait " in command:
                examples.append(Example(command, tuple(output)))
    return examples
