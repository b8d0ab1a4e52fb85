"""The check of stored selections: does one have an age with a sign, which reads as either of two meanings?"""

from __future__ import annotations

from recovery.engine import Resources
from recovery.engine.operators.stored_selections import with_signed_ages
from recovery.health.model import Cause, Check, join_names, ok, warning


def selections(resources: Resources) -> Check:
    """No saved search and no schedule has an age with a sign."""
    found = with_signed_ages(resources)
    if not found:
        return ok("selections", "no saved search or schedule has an age with a sign")
    named = join_names(f"{stored.name}: {stored.text}"[:100] for stored in found)
    return warning(
        "selections",
        Cause.SELECTIONS_AMBIGUOUS,
        f"ages with signs, which read in two ways: {named}. They keep the meaning that they had",
        "`recovery init` rewrites them as before(…), within(…), longer(…) or shorter(…), once no worker of an earlier "
        "version lives: it could not read that",
    )
