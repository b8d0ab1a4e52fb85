"""What somebody else wrote is shown as it is, and does nothing."""

from __future__ import annotations

import io
import json
import logging
import traceback
from collections.abc import Callable

import pytest
from rich.table import Table
from rich.text import Text

from recovery import errors
from recovery.cli.output import PlainConsole, fail, line
from recovery.log_lines import PrintableRecord
from recovery.wording import printable, printable_json, printable_lines

ESCAPES = (
    "\x1b[31m \x9b2J \u202e \u2066 \u200b \ufeff \u00ad \u3164 \ufe0f \U000e0041 \U000e0101 \r \x07 \x7f \u2028 \ud800"
)
"""Of each class one: sequences of a terminal, direction, what has no width, what is not seen, half of a letter."""


def test_what_is_not_seen_is_shown_as_its_code() -> None:
    said = printable(ESCAPES)
    assert said == (
        r"\x1b[31m \x9b2J \u202e \u2066 \u200b \ufeff \xad \u3164 \ufe0f \U000e0041 \U000e0101 \r"
        r" \x07 \x7f \u2028 \ud800"
    )
    assert said.encode() and said.isprintable() and printable(said) == said


def test_letters_of_all_languages_stay() -> None:
    for text in ("Привет, мир", "注文 42", "naïve – café", "[red]a[/red] :smile:", "a\\b", "🚚"):
        assert printable(text) == printable_lines(text) == text


def test_one_line_or_several() -> None:
    assert printable("a\nb\tc") == r"a\nb\tc"
    assert printable_lines("a\nb\tc\rd\x85e") == "a\nb\tc\\rd\\x85e"
    assert printable("abcdef", 3) == "abc…"


def test_json_has_the_same_value() -> None:
    value = {"id": ESCAPES.replace("\ud800", "") + 'é"\\'}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert text.isprintable() and "é" in text


def test_a_console_shows_texts_as_they_are() -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, width=300)
    table = Table("[/red]")
    table.add_row(f"[bold]{ESCAPES}", Text("[/x] :smile:"))
    console.print("[/red] [link=http://x]y[/link]", ESCAPES)
    console.print(table, style="bold")
    console.print("a\nb")
    console.print(line("c\nd ", ("e\nf", "bold")))
    shown = out.getvalue()
    assert "a\\nb\nc\\nd e\\nf\n" in shown
    assert "[/red] [link=http://x]y[/link]" in shown and "[bold]\\x1b" in shown and "[/x] :smile:" in shown
    assert shown.replace("\n", "").isprintable()


def test_colours_are_those_of_our_styles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    fail("\x1b[32mgreen\nerror: forged", ["\x1b]0;title\x07"])
    said = capsys.readouterr().err
    assert "\x1b[1;31merror: " in said
    assert "\n  error: forged" in said or "\n\x1b[31m  error: forged" in said
    assert "\x1b[32m" not in said and "\x1b]0" not in said and "\x07" not in said


def test_a_log_line_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    log = logging.Logger("x")
    log.addHandler(logging.StreamHandler(lines))
    monkeypatch.setattr(logging, "_logRecordFactory", PrintableRecord)
    try:
        raise ValueError("boom\n[2026-01-01 00:00:00: INFO] all is well \x1b[2J")
    except ValueError as error:
        log.error("%s failed: %s", "name\x1b]0;x\x07", error, exc_info=True)
    log.warning("the end of a line\n")
    first, *rest, last = lines.getvalue().splitlines()
    assert last == "the end of a line"
    assert first == r"name\x1b]0;x\x07 failed: boom\n[2026-01-01 00:00:00: INFO] all is well \x1b[2J"
    assert rest[0].startswith("Traceback") and all(line.startswith("  ") for line in rest[1:])
    assert "\x1b" not in lines.getvalue()


ERRORS: list[Callable[[str], errors.RecoveryError]] = [
    lambda text: errors.ProcessBroken(text, text, text, text, text),
    lambda text: errors.DamagedRecord(text, text),
    *(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RecoveryError)
      and "__init__" not in vars(kind)),
]  # fmt: skip


@pytest.mark.parametrize("make", ERRORS)
def test_no_error_of_ours_has_what_acts_on_a_terminal(make: Callable[[str], errors.RecoveryError]) -> None:
    """Python prints the text of an error that nobody catches as it is."""
    error = make("\x1b[31m\u202etwo\nlines")
    shown = "".join(traceback.format_exception(error))
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "\\x1b[31m\\u202etwo\nlines" in shown
    if isinstance(error, errors.ProcessBroken):
        assert error.kind == error.message == "\x1b[31m\u202etwo\nlines"
