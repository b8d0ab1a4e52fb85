"""What people save under names, searches and operations: found, saved and removed in one way.

Each change is one compare-and-set on the record as it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recovery.engine.operators.auditing import Outcome
from recovery.errors import InputError
from recovery.records import given
from recovery.records.search_names import SIGN
from recovery.search.pointing import not_saved

if TYPE_CHECKING:
    from recovery.store.operators.command_records import S, Saved


def named(kept: Saved[S], name: str, noun: str, how_to_save: str) -> S:
    """Return what is saved under a name, with or without its `@`. Raises InputError, which names the nearest."""
    found, plain = kept.all(), given.text(name, "name").removeprefix(SIGN)
    if plain not in found:
        _refuse_damaged(kept, plain)
        raise InputError(not_saved(plain, found, noun, how_to_save))
    return found[plain]


def put(kept: Saved[S], new: S, told: Callable[[S], str], outcome: Outcome, *, replace: bool) -> S:
    """Save this; as it is saved. What is saved as it is already stays. `told` says in a line what it is.

    Raises InputError where another is saved under this name, unless that is to be replaced, and where somebody else
    changed it meanwhile.
    """
    outcome.text = "saved"
    before = kept.all().get(new.id)
    if (
        before is not None
        and new.evolve(by=before.by, reason=before.reason, at=before.at, version=before.version) == before
    ):
        outcome.text = "was saved already"
        return before
    if before is None:
        _refuse_damaged(kept, new.id)
        saved = kept.insert(new)
    elif replace:
        new = new.evolve(version=before.version)
        outcome.text = f"saved in the place of: {told(before)}"
        saved = kept.replace(new)
    else:
        at = f", at {before.at:%Y-%m-%d %H:%M:%S} UTC" if before.at else ""
        raise InputError(
            f"{SIGN}{new.id} is saved already, by {before.by}{at}: {told(before)}\nGive --replace if it is to be "
            "another one, or take another name"
        )
    if not saved:
        raise _changed(new)
    return new


def take_out(kept: Saved[S], saved: S) -> None:
    """Remove what was read. Raises InputError where somebody else changed it meanwhile."""
    if not kept.remove(saved):
        raise _changed(saved)


def _refuse_damaged(kept: Saved[S], name: str) -> None:
    if (damage := kept.damage(name)) is not None:
        raise InputError(
            f"{SIGN}{name} can't be read: {damage}. Correct or remove it in MongoDB's collection `{kept.name}`"
        )


def _changed(saved: S) -> InputError:
    return InputError(f"{SIGN}{saved.id} was changed by somebody else just now: look at it, and try again")
