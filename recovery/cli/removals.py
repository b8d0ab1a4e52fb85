"""The question whether processes are really to be removed, in words and dates."""

from __future__ import annotations

import sys

import typer


def agree_to_removal(words: str, when: str = "") -> None:
    """Ask on a terminal whether these processes are to be removed. Without a terminal nobody can be asked, and the
    command goes on. Commands do not call this if --yes is given. Raises InputError if the answer is no."""
    from recovery.errors import InputError

    if not sys.stdin.isatty():
        return
    if not typer.confirm(f"This removes {words}, if they are over{when}. Go on?", err=True):
        raise InputError("the removal was not agreed to; nothing was done")
