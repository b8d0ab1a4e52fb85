"""The check of what MongoDB's user may do, as whom this machine comes."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, problem
from recovery.store import roles


def rights(resources: Resources) -> Check:
    """This machine's user of MongoDB may do all that one of the roles may."""
    return judge_rights(resources.store.server.rights())


def judge_rights(held: roles.Held | None) -> Check:
    """What the rights come to."""
    name = "rights"
    if held is None:
        return ok(name, "nobody logs in to MongoDB: whoever reaches it may do everything")
    whole = [role for role, lacking in held.lacking.items() if not lacking]
    if whole:
        return ok(name, f"{held.user} may do all of {', '.join(whole)}")
    # The one that was meant, most likely.
    nearest = min(held.lacking, key=lambda role: sum(map(len, held.lacking[role].values())))
    lacking = [
        f"{action} of {collection or 'the database'}"
        for collection, actions in held.lacking[nearest].items()
        for action in sorted(actions)
    ]
    found = f"{held.user} may not do all of any role; of {nearest} it lacks {join_names(lacking)}"
    return problem(
        name,
        Cause.RIGHTS_MISSING,
        found,
        f"grant it {nearest}, or what that has: `recovery init --roles` brings roles up to date",
    )
