"""Settings: read once from the environment (`RECOVERY_*`) or a TOML file, validated, frozen.

The environment wins over the file, and what the code gives wins over both. The file is named by
`RECOVERY_CONFIG`; its keys are the field names below. A name that no field has is an error that suggests the
nearest one, since a misspelt setting that is silently ignored is found out in an outage. Times are in seconds, or
texts as `recovery.wording` reads them: `90`, `10m`.

Use `load` or `current`: they turn pydantic-core's errors into a SettingsError that says where a value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic_core import ValidationError

from recovery.errors import SettingsError
from recovery.limits import LONGEST, LONGEST_SILENCE, SHORT_NAME, SHORTEST
from recovery.setting_forms import (
    APP_PATH,
    BROKER_URL,
    DATABASE_NAME,
    DURATION,
    FOLDER,
    HOST,
    INTERVAL_OR_NEVER,
    LOG_FORMAT,
    MESSAGE_KEY,
    MONGO_URI,
    NUMBER,
    SPARK_MASTER,
    SWITCH,
    TEXT,
    WHOLE,
    DeclaredSetting,
    LogFormat,
    Secret,
    as_text,
    setting,
    validator,
)
from recovery.setting_sources import PREFIX, describe, file_values, variables
from recovery.wording import show_duration

OFTEN = 0.01
"""The shortest interval, in seconds, of what is done again and again. A hundred writes or nudges a second are a tenth
of what one thread brings about; more would be all that a machine does."""
BEATS = 3
"""Heartbeats in a heartbeat timeout, at least: one may be lost, and the next be late."""
LEAST_MESSAGE_MARGIN, LEAST_CLAIM_MARGIN = 0.5, 0.2
"""Seconds. A page of tasks takes some tenths of a second to be queued and pushed, whatever `message_timeout` is."""


class Settings:
    """All settings with their defaults; each default is argued where it stands. Frozen.

    Values that are given win over the environment, and that over the file that RECOVERY_CONFIG names.
    """

    model_fields: ClassVar[Mapping[str, DeclaredSetting]]
    """All settings, by name."""

    app: str | None = setting(APP_PATH, None, description="Where your `Recovery` object is: `package.module:name`.")
    mongo_uri: str = setting(
        MONGO_URI, "mongodb://127.0.0.1:27017", description="MongoDB: a replica set, 6.0 or newer."
    )
    database: str = setting(
        DATABASE_NAME, "recovery", pattern=r"^[A-Za-z0-9_-]{1,38}$", description="Database in MongoDB."
    )
    # Applications that share a database by accident take each other's tasks.
    shared_with: str | None = setting(
        TEXT,
        None,
        pattern=f"^{SHORT_NAME}(,{SHORT_NAME})*$",
        description="Names of other applications that may use this database, with commas between; unset: none may.",
    )
    broker_url: str = setting(BROKER_URL, "redis://127.0.0.1:6379/0", description="Redis or Valkey, Celery's broker.")
    # Off by default: most have a Redis of their own, behind a password.
    message_key: Secret | None = setting(
        MESSAGE_KEY,
        None,
        description="Key that messages are signed with, 32 characters or more; or several, with commas between.",
    )
    accept_unsigned: bool = setting(
        SWITCH,
        False,
        description="Whether workers with a key take messages without a signature: while it is introduced.",
    )
    # On by default, since whoever needs them needs what was counted before. On loopback nobody else reaches them.
    metrics_port: int | None = setting(
        WHOLE,
        None,
        ge=0,
        le=65535,
        description="Port of Prometheus metrics; unset: the first free one from 9101; 0: none.",
    )
    metrics_host: str = setting(HOST, "127.0.0.1", description="Address that metrics are served on.")
    # What people read, and what Celery's users know.
    log_format: LogFormat = setting(
        LOG_FORMAT,
        LogFormat.TEXT,
        description="How workers, beat and long-running commands log: `text`, or `json`, a line each.",
    )
    data_dir: Path = setting(FOLDER, Path(".recovery"), description="Where `recovery up` keeps its servers' data.")
    # MongoDB's own default is half of the memory; an embedded server shares the machine with the workers.
    mongo_cache_gb: float = setting(
        NUMBER, 0.5, ge=0.25, le=10_000, description="Cache of the MongoDB that `recovery up` starts."
    )

    # A beat every 2 s and three missed ones: a killed machine is known in 4 to 8 s, and a worker that is
    # held up for a few seconds by its machine is not taken for dead.
    heartbeat_interval: float = setting(
        DURATION, 2.0, ge=OFTEN, le=LONGEST_SILENCE // BEATS, description="How often a worker says that it lives."
    )
    heartbeat_timeout: float = setting(
        DURATION, 6.0, ge=SHORTEST, le=LONGEST_SILENCE, description="Silence after which a worker counts as lost."
    )
    scan_interval: float = setting(
        DURATION, 1.0, ge=OFTEN, le=LONGEST, description="How often Celery beat nudges the scanners."
    )
    scan_batch: int = setting(WHOLE, 1000, ge=1, le=100_000, description="Records that a scanner looks at at once.")
    # The net under the nets: every step has a deadline of its own that is shorter. It doubles while a
    # process is found healthy, so a process that waits for weeks costs a look a day.
    idle_timeout: float = setting(
        DURATION, 60.0, ge=SHORTEST, le=LONGEST, description="First look at a process in which nothing changes."
    )
    # Long enough for a busy queue to drain a burst; a message that is lost costs this once.
    message_timeout: float = setting(
        DURATION, 10.0, ge=SHORTEST, le=LONGEST, description="First look at a queued task's message."
    )
    # Applying takes milliseconds; one that is not done by now was cut off.
    apply_timeout: float = setting(
        DURATION, 5.0, ge=SHORTEST, le=LONGEST, description="First look at a decision that is not applied."
    )
    # Of more, each costs as much as of so many; and so many are run again, at most, where a slot is killed.
    batch_size: int = setting(
        WHOLE,
        64,
        ge=1,
        le=1000,
        description="Quick tasks that a slot takes at once, at most; with 1 it takes none by itself.",
    )
    shutdown_grace: float = setting(
        DURATION,
        10.0,
        ge=0,
        le=LONGEST,
        description="On SIGTERM: how long running attempts may end before they are given back.",
    )
    # Longer than a rolling deployment takes to replace the first worker.
    version_grace: float = setting(
        DURATION,
        600.0,
        ge=0,
        le=LONGEST,
        description="How long every version of your code must have refused a task's arguments before the task fails.",
    )
    # Off only to test that the deadlines alone are enough.
    events: bool = setting(SWITCH, True, description="Act at once on what is known at once (a dead child or worker).")
    scanners: bool = setting(SWITCH, True, description="Whether workers answer the nudges of Celery beat.")

    canary: bool = setting(
        SWITCH, True, description="Whether workers serve `recovery.canary`, the actor of `recovery drill`."
    )
    # Off: whoever may start processes could have workers killed.
    drill_kill: bool = setting(
        SWITCH,
        False,
        description="Whether `recovery drill --kill` may have this worker killed, or a process of its pool.",
    )

    spark_master: str = setting(SPARK_MASTER, "local[*]", description="Spark master of sweeps and of large operations.")
    # Some ten seconds of one worker's time; below that Spark is no quicker.
    spark_from: int = setting(
        WHOLE,
        100_000,
        ge=1,
        le=100_000_000,
        description="From how many processes on operations run in Spark, if a worker serves it.",
    )
    spark_memory: str = setting(
        TEXT, "1g", pattern=r"^[1-9][0-9]{0,8}[kmgKMG]$", description="Memory of the Spark driver."
    )
    # A sweep finds what no deadline brings up, and costs minutes of one worker.
    sweep_interval: float = setting(
        INTERVAL_OR_NEVER, 86_400.0, le=LONGEST, description="How often beat orders a sweep; 0: never."
    )
    sweep_repair: bool = setting(SWITCH, True, description="Whether the sweep that beat starts repairs what it finds.")

    def __init__(self, **given: Any) -> None:
        """Raise ValidationError, or SettingsError for a file that can't be read; `load` raises SettingsError alone."""
        values = {**file_values(), **variables(), **given}
        self.__dict__.update(_VALIDATOR.validate_python(values), model_fields_set=set(values))

    model_fields_set: set[str]
    """Names of the settings that were given, whether by code, the environment or a file."""

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{name}: settings are frozen; `model_copy` makes others")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: settings are frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(tuple(self.model_dump().items()))

    def __repr__(self) -> str:
        shown = (f"{name}={found.shown(getattr(self, name))!r}" for name, found in self.model_fields.items())
        return f"Settings({', '.join(shown)})"

    def model_dump(self) -> dict[str, Any]:
        """Return {setting: its value}."""
        return {name: getattr(self, name) for name in self.model_fields}

    def model_copy(self, *, update: Mapping[str, Any] = {}) -> Settings:
        """Return these settings with others in their place, which are not checked."""
        copy = object.__new__(Settings)
        given = self.model_fields_set | set(update)
        copy.__dict__.update({**self.__dict__, **update}, model_fields_set=given)
        return copy

    @property
    def shared_names(self) -> tuple[str, ...]:
        """The other applications that may use this database."""
        return tuple(self.shared_with.split(",")) if self.shared_with else ()

    @property
    def message_margin(self) -> float:
        """Seconds within which a message is pushed after its task was queued; see `rules.Surroundings`."""
        return max(LEAST_MESSAGE_MARGIN, 0.2 * self.message_timeout)

    @property
    def claim_margin(self) -> float:
        """Seconds within which a worker claims the task of a message that it took; see `rules.Surroundings`."""
        return max(LEAST_CLAIM_MARGIN, 0.08 * self.message_timeout)

    @property
    def claim_within(self) -> float:
        """Seconds that a claim may take: a worker that waits longer is as good as lost, and another one claims."""
        return self.heartbeat_timeout / 2

    @property
    def polled_within(self) -> float:
        """Seconds after which a queue counts as not polled: a heartbeat tells of polls, and it may be late."""
        return self.heartbeat_timeout + self.heartbeat_interval

    @property
    def scanned_within(self) -> float:
        """Seconds within which some worker notes a scan, and that it took a beat's nudge: notes are no further apart
        than two seconds. Workers scan by themselves where none was noted for so long."""
        return max(5.0, 3 * self.scan_interval)

    @property
    def nudged_within(self) -> float:
        """Seconds within which a beat that runs leaves word in Redis that it nudged. Redis counts whole seconds."""
        return max(3.0, 3 * self.scan_interval)

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, to hand to a process that we start."""
        return {
            f"{PREFIX}{name.upper()}": as_text(value) for name, value in self.model_dump().items() if value is not None
        }


Settings.model_fields = {name: found for name, found in vars(Settings).items() if isinstance(found, DeclaredSetting)}


def _heartbeat_order(values: dict[str, Any]) -> dict[str, Any]:
    interval, timeout = values["heartbeat_interval"], values["heartbeat_timeout"]
    if timeout < BEATS * interval * (1 - 1e-9):  # 3 * 0.1 is above 0.3
        raise ValueError(
            f"heartbeat_timeout={show_duration(timeout)} must be at least three times "
            f"heartbeat_interval={show_duration(interval)}: with less, one heartbeat that is lost, "
            "and the next a little late, have a healthy worker count as lost"
        )
    return values


_VALIDATOR = validator(Settings.model_fields, _heartbeat_order)


def load(**overrides: Any) -> Settings:
    """Return settings from the environment over the TOML file that it names; `overrides` that are not None win.

    Raises SettingsError naming each setting that is wrong, where it came from and what it should be.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [describe(item, given, Settings.model_fields) for item in error.errors()]
        raise SettingsError("\n".join(lines)) from None


@lru_cache(maxsize=1)
def current() -> Settings:
    """Return the process's settings, read at first use."""
    return load()
