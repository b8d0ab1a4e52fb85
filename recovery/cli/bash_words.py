"""The words of a command line as bash tells them to what completes it: put together again where it takes them apart.

Outside of quotes bash begins a word at each run of `:`, `=` and `@` (COMP_WORDBREAKS). `find state:br` comes as `find`,
`state`, `:`, `br`, and what is offered takes the place of the last of these alone; but of `@`, `stuck` it takes that of
both. Whether there was a space before such a run bash does not pass on: one that begins with `@` is taken for the start
of a word, as in `find @stuck`, and any other for the middle of one.

What is offered is inserted as it is. After a quote that is still open that is what the user means. In a word with a
backslash, or with a quote that was closed, it would lose what these protect, so nothing is offered for such a word.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

ASKED, BASH = "_RECOVERY_COMPLETE", "complete_bash"
"""The variable in which a shell says that it completes, and what bash says in it."""
WORDS, PLACE = "COMP_WORDS", "COMP_CWORD"
_BREAKS = re.compile("[:=@]+")
_KEEPS_ITS_QUOTES = re.compile(r"""[^'"\\]*(?:'[^']*|"[^"\\]*)?""")
"""A word that has one quote at most, which is open."""


@contextmanager
def bash_words() -> Iterator[None]:
    """In here the environment has the words as they were typed, up to the one that is completed, if bash asks; and what
    is offered loses what bash keeps."""
    if os.environ.get(ASKED) != BASH or not os.environ.get(PLACE, "").isdecimal():
        yield
        return
    completed, kept = _join()
    said = StringIO()
    try:
        with redirect_stdout(said):
            yield
    finally:
        if _KEEPS_ITS_QUOTES.fullmatch(completed):
            sys.stdout.writelines(f"{line.removeprefix(kept)}\n" for line in said.getvalue().splitlines())


def _join() -> tuple[str, str]:
    """Join the words in the environment. Return the one that is completed, and what bash keeps of it."""
    place = int(os.environ[PLACE])
    words = os.environ.get(WORDS, "").split("\n")
    joined, kept = joined_words([*words, *[""] * (place + 1 - len(words))][: place + 1])
    os.environ |= {WORDS: "\n".join(joined), PLACE: str(len(joined) - 1)}
    return joined[-1], kept


def joined_words(words: list[str]) -> tuple[list[str], str]:
    """Return the words as they were typed, and of the text that completes the last one what bash keeps."""
    joined, kept, after_break = list[str](), "", False
    for word in words:
        is_break = _BREAKS.fullmatch(word) is not None
        # An empty word is only there if a space was typed before it.
        if joined and word and (after_break or (is_break and not word.startswith("@"))):
            joined[-1] += word
        else:
            kept = ""
            joined.append(word)
        if is_break:
            kept = joined[-1].removesuffix("@")
        after_break = is_break
    # After `--option=` what is offered is the value alone.
    return joined, kept.partition("=")[2] if kept.startswith("-") else kept
