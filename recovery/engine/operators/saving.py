"""Find, save and remove what people save under names: searches and operations.

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
    """Return what is saved under a name, with or without `@`. Raises InputError, which suggests the nearest name."""
    saved, plain = kept.all(), given.text(name, "name").removeprefix(SIGN)
    if plain not in saved:
        _refuse_damaged(kept, plain)
        raise InputError(not_saved(plain, saved, noun, how_to_save))
    return saved[plain]


def put(kept: Saved[S], new: S, told: Callable[[S], str], outcome: Outcome, *, replace: bool) -> S:
    """Save a search or an operation, and return it as it is saved. If the same is saved already, nothing changes.

    Args:
        kept: The collection.
        new: The search or operation.
        told: Returns a line that describes it.
        outcome: The outcome in the audit log, which this function sets.
        replace: Whether to replace another one with the same name.

    Raises:
        InputError: Another one has this name and `replace` is false, or somebody else changed it at this moment.
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
            f"{SIGN}{new.id} is saved already, by {before.by}{at}: {told(before)}\nGive --replace to replace "
            "it, or take another name"
        )
    if not saved:
        raise _changed(new)
    return new


def take_out(kept: Saved[S], saved: S) -> None:
    """Remove a saved search or operation. Raises InputError if somebody else changed it since it was read."""
    if not kept.remove(saved):
        raise _changed(saved)


def _refuse_damaged(kept: Saved[S], name: str) -> None:
    if (damage := kept.damage(name)) is not None:
        raise InputError(
            f"{SIGN}{name} can't be read: {damage}. Correct or remove it in MongoDB's collection `{kept.name}`"
        )


def _changed(saved: S) -> InputError:
    return InputError(f"{SIGN}{saved.id} was changed by somebody else just now: look at it, and try again")
