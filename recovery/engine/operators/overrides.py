"""Changes by operators while workers run: settings of actors and process types, blocked actors, and disabled process
types.

A setting is written first. From then on it holds: every program of ours reads it within seconds. Then workers are told
to read it at once. Last, deadlines that are too late under the new setting are moved, so that tasks and processes that
already run are judged by it. If the command is cut off before that, they are judged at their old deadlines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic

from recovery.engine.lookup import hint
from recovery.engine.operators.auditing import audited, reason_of, who
from recovery.engine.resources import Resources
from recovery.errors import InputError, UnknownActor, UnknownProcessType
from recovery.records import ActorPreferences, ProcessTypePreferences, Stored, given
from recovery.records.preferences import P, Preferences, check, setting_names
from recovery.retry.policy import check_policy
from recovery.store.lifecycle.actors import KeptSettings


class Overrides(ABC, Generic[P]):
    """Settings of one kind, by name, that an operator sets over those of the code."""

    kind: ClassVar[type[Preferences]]
    """The class of the settings."""
    what: ClassVar[str]
    """What messages call an object of this kind."""
    unknown: ClassVar[type[InputError]]
    """The error for a name under which nothing is stored."""

    def __init__(self, resources: Resources, kept: KeptSettings[P]) -> None:
        self._resources, self._store = resources, resources.store
        self._kept: KeptSettings[P] = kept

    def get(self, name: str) -> Stored[P]:
        """Return the settings that are stored under this name. Raises UnknownActor or UnknownProcessType, as all
        methods below do."""
        stored = self._kept.get(given.text(name, f"name of the {self.what}"))
        if stored is None:
            suggestion = hint(
                name, sorted(self._kept.stored()), "none is known yet: workers report theirs when they start"
            )
            raise self.unknown(f"no {self.what} is named {name!r}; {suggestion}")
        return stored

    def set(self, name: str, changes: Mapping[str, Any], reason: str = "", *, by: str | None = None) -> None:
        """Set these settings over those of the code. Raises InputError for a setting that is unknown or has a wrong
        value."""
        with audited(self._resources, f"{self.what} set", name, reason, by=by, settings=dict(changes)):
            self._set(name, changes)

    def _set(self, name: str, changes: Mapping[str, Any]) -> None:
        known_settings(self.kind, changes)
        changed = self.get(name).effective.evolve(**changes)
        check(changed)
        check_policy(changed.retry_options(), f"{self.what} {name}")
        self._kept.override(name, changes)
        self._announce()
        self._advance_deadlines(name, self.get(name).effective)

    def unset(self, name: str, settings: Iterable[str], reason: str = "", *, by: str | None = None) -> None:
        """Make the code's values of these settings hold again. Raises InputError for an unknown setting."""
        names = list(settings)
        with audited(self._resources, f"{self.what} unset", name, reason, by=by, settings=names):
            self._unset(name, names)

    def _unset(self, name: str, settings: Iterable[str]) -> None:
        names = known_settings(self.kind, settings)
        self.get(name)
        self._kept.unset(name, names)
        self._announce()
        self._advance_deadlines(name, self.get(name).effective)

    def _announce(self) -> None:
        """Make workers and this program read the change at once."""
        self._store.preferences.invalidate()
        self._resources.broker.tell_settings_changed()

    @abstractmethod
    def _advance_deadlines(self, name: str, effective: P) -> None:
        """Move the deadlines that are too late under these settings."""


class ActorOverrides(Overrides[ActorPreferences]):
    """Settings of actors, and which actors are blocked."""

    kind, what, unknown = ActorPreferences, "actor", UnknownActor

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources, resources.store.actors)

    def block(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Block an actor: none of its tasks begins. Return False if it was blocked already."""
        with audited(self._resources, "actor block", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.actors.block(name)
            outcome.text = "done" if changed else "was blocked already"
            self._announce()
        return changed

    def unblock(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Unblock an actor: its tasks begin again. Return False if it was not blocked."""
        with audited(self._resources, "actor unblock", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.actors.unblock(name)
            outcome.text = "done" if changed else "was not blocked"
            self._announce()
            # Even if it was not blocked, because an earlier call may have been cut off here.
            self._store.task_deadlines.taken_up(name)
        return changed

    def _advance_deadlines(self, name: str, effective: ActorPreferences) -> None:
        if effective.task_limit is not None:
            self._store.task_deadlines.advance_deadline(name, effective.task_limit)


class ProcessTypeOverrides(Overrides[ProcessTypePreferences]):
    """Settings of process types, and which process types are disabled."""

    kind, what, unknown = ProcessTypePreferences, "process type", UnknownProcessType

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources, resources.store.process_types)

    def disable(self, name: str, reason: str, by: str | None = None) -> bool:
        """Disable a process type: none of its processes is started. Running processes go on. Return False if it was
        disabled already; the earlier reason then stays."""
        reason = reason_of(reason, "shown to everybody who tries to start one")
        with audited(self._resources, "process type disable", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.process_types.disable(name, by or who(), reason)
            outcome.text = "done" if changed else "was disabled already"
            self._announce()
        return changed

    def enable(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Enable a process type: its processes can be started again. Return False if it was not disabled."""
        with audited(self._resources, "process type enable", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.process_types.enable(name)
            outcome.text = "done" if changed else "was not disabled"
            self._announce()
        return changed

    def _advance_deadlines(self, name: str, effective: ProcessTypePreferences) -> None:
        if effective.process_timeout:
            self._store.processes.advance_deadline(name, effective.process_timeout)


def known_settings(kind: type[Preferences], names: Iterable[str]) -> list[str]:
    """Return these names as a list. Raises InputError if one of them is not a setting."""
    known, wanted = setting_names(kind), list(names)
    for name in wanted:
        if name not in known:
            raise InputError(f"no setting is named {name!r}; {hint(name, known, 'there are none')}")
    return wanted
