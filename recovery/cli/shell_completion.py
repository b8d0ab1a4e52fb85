"""What a shell offers for an id, an actor, a process type or a search: what there is in the database, if it answers at
once.

Silent if it does not, and if a setting is wrong: a shell that completes is no place for an error.

Anybody who starts a process chooses texts in the database, and a shell runs what it is offered: bash inserts it without
quotes, and zsh evaluates it while it completes. So every completed value goes through `_offer`, which leaves out all
values that hold a character with a meaning to a shell.

Bash passes the words of a command line in parts, which `bash_words` puts together again. Outside of quotes bash begins
a word at each run of `:`, `=` and `@` (COMP_WORDBREAKS). `find state:br` comes as `find`, `state`, `:`, `br`, and what
is offered takes the place of the last of these alone; but of `@`, `stuck` it takes that of both. Whether there was a
space before such a run bash does not pass on: one that begins with `@` is taken for the start of a word, as in `find
@stuck`, and any other for the middle of one.

Bash inserts what is offered as it is. After a quote that is still open that is what the user means. In a word with a
backslash, or with a quote that was closed, it would lose what these protect, so nothing is offered for such a word.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.store import Store

ASKED, BASH = "_RECOVERY_COMPLETE", "complete_bash"
"""The variable in which a shell says that it completes, and what bash says in it."""
WORDS, PLACE = "COMP_WORDS", "COMP_CWORD"
_BREAKS = re.compile("[:=@]+")
_KEEPS_ITS_QUOTES = re.compile(r"""[^'"\\]*(?:'[^']*|"[^"\\]*)?""")
"""A word that has one quote at most, which is open."""


@contextmanager
def bash_words() -> Iterator[None]:
    """Complete for bash: in this block the environment has the words as they were typed, up to the one that is
    completed, and what is offered loses what bash keeps. Does nothing if bash does not ask."""
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


TIMEOUT = 1.0
"""Seconds that a person waits for a completion; a server that is well answers in a few milliseconds."""
MAX_OFFERED = 50
"""Of ids the newest so many; more than that nobody reads."""
MAX_VALUES = 1000
"""Of what is broken: so many kinds of errors are looked at."""

_OFFERED = re.compile(r"[A-Za-z0-9._:@/+](?:[A-Za-z0-9._:@/+-]|(?<![:=])=)*")
"""A value that means nothing to a shell, and that no command takes for an option. zsh makes a path of `=ls`, and with
MAGIC_EQUAL_SUBST also of `a==ls` and `a=b:=ls`."""
_REPEATED = re.compile(r"[A-Za-z0-9._:@/+= ()<>-]*")
"""The earlier terms of a search, as the user typed them in quotes. The shell gets them again with the value."""
_REPEATED_LITERALLY = re.compile(r"""[A-Za-z0-9._:@/+= ()<>"\\-]*""")
"""The same in shells that do not evaluate them."""
_LITERAL_SHELLS = ("complete_bash", "complete_fish")


def complete_actor(incomplete: str) -> list[str]:
    """Return the names of actors that workers reported."""
    return _offer(_ask(lambda store: store.actors.stored(), incomplete))


def complete_type(incomplete: str) -> list[str]:
    """Return the names of process types that workers reported."""
    return _offer(_ask(lambda store: store.process_types.stored(), incomplete))


def complete_schedule(incomplete: str) -> list[str]:
    """Return the names of schedules."""
    return _offer(_ask(lambda store: store.schedules.all(), incomplete))


def complete_marker(incomplete: str) -> list[str]:
    """Return the names of markers."""
    return _offer(_ask(lambda store: [marker.id for marker in store.markers.all()], incomplete))


def complete_operation(incomplete: str) -> list[str]:
    """Return the numbers of the last operations."""
    return _offer(_ask(lambda store: [str(one.id) for one in store.operations.newest(MAX_OFFERED)], incomplete))


def complete_kind(incomplete: str) -> list[str]:
    """Return the kinds of operations."""
    from recovery.records import OperationKind

    return _offer(kind.value for kind in OperationKind if kind.value.startswith(incomplete))


def complete_saved_operation(incomplete: str) -> list[str]:
    """Return the names of saved operations."""
    return _offer(_ask(lambda store: store.saved_operations.all(), incomplete))


def complete_kind_or_saved(incomplete: str) -> list[str]:
    """Return the kinds of operations, or after an `@` the saved ones."""
    if not incomplete.startswith("@"):
        return complete_kind(incomplete)
    return _offer(_ask(lambda store: [f"@{name}" for name in store.saved_operations.all()], incomplete))


def complete_state(incomplete: str) -> list[str]:
    """Return the states of processes."""
    from recovery.records import ProcessState

    return _offer(state.value for state in ProcessState if state.value.startswith(incomplete))


def complete_saved(incomplete: str) -> list[str]:
    """Return the names of saved searches."""
    return _offer(_ask(lambda store: store.saved_searches.all(), incomplete))


def complete_search(incomplete: str) -> list[str]:
    """Return fields and values of the search language, for the last term."""
    from recovery.search.fields import complete

    before, terms = complete(incomplete, _values)
    return _offer(terms, before)


def complete_process(incomplete: str) -> list[str]:
    """Return ids and custom ids of processes."""

    def find(store: Store) -> Iterable[str]:
        ids = store.process_names
        return [
            *ids.newest(incomplete, MAX_OFFERED),
            *(one.custom_id for one in ids.starting_with(incomplete, MAX_OFFERED)),
        ]

    return _offer(_ask(find, incomplete))


def _offer(values: Iterable[str], before: str = "") -> list[str]:
    """Return the values that every shell takes for plain text, each after what the user typed `before` it."""
    repeated = _REPEATED_LITERALLY if os.environ.get(ASKED) in _LITERAL_SHELLS else _REPEATED
    if not repeated.fullmatch(before):
        return []
    return [before + value for value in values if _OFFERED.fullmatch(value)]


def _values(field: str, member: str, start: str) -> Iterable[str]:
    """What there is in the database for a field, as `recovery.search.fields` asks for it."""
    if field == "label":
        return _ask(lambda store: _labels(store, member, start), start)
    if field == "rule":
        from recovery.rules import Rule

        return [rule.value for rule in Rule]
    asked = OF_FIELDS.get(field)
    return _ask(lambda store: asked(store, start), start) if asked is not None else []


def _labels(store: Store, member: str, start: str) -> list[str]:
    return (
        store.process_names.label_values(member, start, MAX_OFFERED)
        if member
        else store.process_names.label_names(start, MAX_OFFERED)
    )


OF_FIELDS: dict[str, Callable[[Store, str], Iterable[str]]] = {
    "@": lambda store, _: store.saved_searches.all(),
    "type": lambda store, _: store.process_types.stored(),
    "actor": lambda store, _: store.actors.stored(),
    "id": lambda store, start: store.process_names.newest(start, MAX_OFFERED),
    "custom": lambda store, start: (one.custom_id for one in store.process_names.starting_with(start, MAX_OFFERED)),
    "key": lambda store, _: {marker.key for marker in store.markers.all() if marker.key},
    "error": lambda store, _: store.interruptions.values("kind", MAX_VALUES),
    "fingerprint": lambda store, _: store.interruptions.values("fingerprint", MAX_VALUES),
    "code": lambda store, _: store.interruptions.values("code", MAX_VALUES),
}
"""{field: what there is of it in the database that may begin so}."""


def _ask(find: Callable[[Store], Iterable[str]], incomplete: str) -> list[str]:
    try:
        from recovery.settings import load
        from recovery.store import Store, wait_for_no_monitor
        from recovery.store.views.overview import time_limit

        wait_for_no_monitor()
        with time_limit(TIMEOUT):
            return [name for name in find(Store(load())) if name.startswith(incomplete)]
    except Exception:  # whatever it is: nothing is offered
        return []
