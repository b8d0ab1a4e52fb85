"""What an operator changes while workers run: settings of actors and process types, which actors are blocked, and which
process types are disabled.

A setting is written first, and that alone counts: every process of ours reads it within seconds. Then workers are told
that there is something to read, so that it is at once; and the deadlines that it makes too late are moved, so that what
runs already is judged by it as well; cut off in between, they are looked at when they are due.
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
    """Settings of one kind, kept by name, that an operator sets over what the code says."""

    kind: ClassVar[type[Preferences]]
    what: ClassVar[str]
    """What one of them is called in a message."""
    unknown: ClassVar[type[InputError]]

    def __init__(self, resources: Resources, kept: KeptSettings[P]) -> None:
        self._resources, self._store = resources, resources.store
        self._kept: KeptSettings[P] = kept

    def get(self, name: str) -> Stored[P]:
        """What is kept under this name. Raises UnknownActor or UnknownProcessType, as all that follow do."""
        stored = self._kept.get(given.text(name, f"name of the {self.what}"))
        if stored is None:
            there = hint(name, sorted(self._kept.stored()), "none is known yet: a worker tells when it starts")
            raise self.unknown(f"no {self.what} is named {name!r}; {there}")
        return stored

    def set(self, name: str, changes: Mapping[str, Any], reason: str = "", *, by: str | None = None) -> None:
        """Set these settings over what the code says. Raises InputError for one that can't be."""
        with audited(self._resources, f"{self.what} set", name, reason, by=by, settings=dict(changes)):
            self._set(name, changes)

    def _set(self, name: str, changes: Mapping[str, Any]) -> None:
        known_settings(self.kind, changes)
        changed = self.get(name).effective.evolve(**changes)
        check(changed)
        check_policy(changed.retry_options(), f"{self.what} {name}")
        self._kept.override(name, changes)
        self._tell()
        self._advance_deadlines(name, self.get(name).effective)

    def unset(self, name: str, settings: Iterable[str], reason: str = "", *, by: str | None = None) -> None:
        """Let the code decide these settings again. Raises InputError for one that there is not."""
        names = list(settings)
        with audited(self._resources, f"{self.what} unset", name, reason, by=by, settings=names):
            self._unset(name, names)

    def _unset(self, name: str, settings: Iterable[str]) -> None:
        names = known_settings(self.kind, settings)
        self.get(name)
        self._kept.unset(name, names)
        self._tell()
        self._advance_deadlines(name, self.get(name).effective)

    def _tell(self) -> None:
        """Have it taken up at once: by workers, and by ourselves."""
        self._store.preferences.invalidate()
        self._resources.broker.tell_settings_changed()

    @abstractmethod
    def _advance_deadlines(self, name: str, effective: P) -> None:
        """Move the deadlines that are too late by what holds now."""


class ActorOverrides(Overrides[ActorPreferences]):
    """Settings of actors, and which are blocked."""

    kind, what, unknown = ActorPreferences, "actor", UnknownActor

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources, resources.store.actors)

    def block(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Have no task of an actor begun any more; False: it was blocked already."""
        with audited(self._resources, "actor block", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.actors.block(name)
            outcome.text = "done" if changed else "was blocked already"
            self._tell()
        return changed

    def unblock(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Have tasks of an actor begun again; False: it was not blocked."""
        with audited(self._resources, "actor unblock", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.actors.unblock(name)
            outcome.text = "done" if changed else "was not blocked"
            self._tell()
            # Whether it changed or not: a call before may have been cut off here.
            self._store.task_deadlines.taken_up(name)
        return changed

    def _advance_deadlines(self, name: str, effective: ActorPreferences) -> None:
        if effective.task_limit is not None:
            self._store.task_deadlines.advance_deadline(name, effective.task_limit)


class ProcessTypeOverrides(Overrides[ProcessTypePreferences]):
    """Settings of process types, and which are disabled."""

    kind, what, unknown = ProcessTypePreferences, "process type", UnknownProcessType

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources, resources.store.process_types)

    def disable(self, name: str, reason: str, by: str | None = None) -> bool:
        """Have no process of a type started any more; False: it was disabled already, and what was said then stands.
        What runs goes on."""
        reason = reason_of(reason, "told to whoever starts one")
        with audited(self._resources, "process type disable", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.process_types.disable(name, by or who(), reason)
            outcome.text = "done" if changed else "was disabled already"
            self._tell()
        return changed

    def enable(self, name: str, reason: str = "", *, by: str | None = None) -> bool:
        """Have processes of a type started again; False: it was not disabled."""
        with audited(self._resources, "process type enable", name, reason, by=by) as outcome:
            self.get(name)
            changed = self._store.process_types.enable(name)
            outcome.text = "done" if changed else "was not disabled"
            self._tell()
        return changed

    def _advance_deadlines(self, name: str, effective: ProcessTypePreferences) -> None:
        if effective.process_timeout:
            self._store.processes.advance_deadline(name, effective.process_timeout)


def known_settings(kind: type[Preferences], names: Iterable[str]) -> list[str]:
    """These names, if all are of settings. Raises InputError."""
    known, wanted = setting_names(kind), list(names)
    for name in wanted:
        if name not in known:
            raise InputError(f"no setting is named {name!r}; {hint(name, known, 'there are none')}")
    return wanted
