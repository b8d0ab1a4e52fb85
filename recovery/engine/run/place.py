"""Where attempts run: one pool process or thread, on behalf of one holder of claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from recovery.engine.actors.actor import Actor
from recovery.engine.actors.call import Host, pass_of
from recovery.engine.resources import Resources
from recovery.engine.run.trying import Trying
from recovery.engine.steps import requeue_unrun
from recovery.records import Decision

MAX_UNCOUNTED = 20
"""Claims of a task after which it is not given back any more by processes that can't run it. The task itself may be to
blame, and has to end: from then on each claim counts as a lost attempt."""


class Place:
    """`actors` are those whose queues this worker serves; `holder` is no other place's while this one runs."""

    def __init__(
        self, resources: Resources, actors: Mapping[str, Actor[..., Any]], holder: str, host: Host | None = None
    ) -> None:
        self.resources, self._actors, self.holder = resources, actors, holder
        self.host = host or Host()
        self.trying = Trying(resources, actors, self.host)

    def may_take(self, name: str) -> bool:
        """Whether a task of this actor may be run here now."""
        return name in self._actors and self.host.takes_more and not self.is_blocked(name)

    def is_blocked(self, name: str) -> bool:
        """Whether an operator has blocked an actor, as of now: who blocks it is told that no more of its tasks
        begin."""
        return self.resources.store.preferences.is_blocked(name)

    def actor(self, name: str) -> Actor[..., Any]:
        """An actor that is served here, as it is set now."""
        return self.as_set(self._actors[name])

    def as_set(self, actor: Actor[..., Any]) -> Actor[..., Any]:
        """An actor with the settings that hold now."""
        preferences = self.resources.store.preferences.actor(actor.preferences)
        return actor if preferences is actor.preferences else replace(actor, preferences=preferences)

    def give_back(self, decisions: Iterable[Decision], error: Exception | None = None) -> None:
        """Requeue what is claimed here, or may be, and is not run. Raises StoreError."""
        if passes := {one.id: pass_of(one) for one in decisions}:
            requeue_unrun(self.resources, passes, self.holder, error)

    def was_not_done(self, decision: Decision, error: Exception) -> None:
        """Note a task that could not be run here for an error that is neither its function's nor a server's."""
        may_be_given_back = decision.attempts <= MAX_UNCOUNTED
        self.host.was_not_done(decision.id, decision.pass_key if may_be_given_back else None, error)
