"""The tables of settings and roles in docs/, and the script of the roles, made from what the code reads.

    python -m tests.docs.reference      # writes them into these pages

Names, defaults, limits and meanings come from the models; units and reasons stand here, since a model has no place
for them. `test_docs` fails while the page is not what this would write.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from recovery.limits import LONGEST
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.records.preferences import RetrySettings, setting_names
from recovery.retry import own_work
from recovery.retry.policy import DEFAULT
from recovery.setting_forms import DURATION, INTERVAL_OR_NEVER, DeclaredSetting
from recovery.setting_sources import PREFIX
from recovery.settings import Settings
from recovery.wording import show_duration
from tests.docs import roles

DOCS = Path(__file__).parents[2] / "docs"

GROUPS: dict[str, tuple[str, ...]] = {
    "Where things are": ("app", "mongo_uri", "database", "shared_with", "broker_url", "data_dir", "mongo_cache_gb"),
    "How soon a fault is seen": (
        "heartbeat_interval",
        "heartbeat_timeout",
        "scan_interval",
        "scan_batch",
        "apply_timeout",
        "message_timeout",
        "idle_timeout",
        "events",
        "scanners",
    ),
    "How a worker takes tasks, and ends": ("batch_size", "shutdown_grace", "version_grace"),
    "The drill": ("canary", "drill_kill"),
    "Signed messages": ("message_key", "accept_unsigned"),
    "Metrics": ("metrics_port", "metrics_host"),
    "Logs": ("log_format",),
    "The sweep": ("spark_master", "spark_from", "spark_memory", "sweep_interval", "sweep_repair"),
}

UNITS = {"mongo_cache_gb": "GB", "scan_batch": "records", "batch_size": "tasks", "metrics_port": "port"}
"""Of numbers that are no times."""

REASONS = {
    "app": "There is no sensible one. Workers, beat and `recovery start` need it.",
    "mongo_uri": "Where `recovery up` starts MongoDB.",
    "database": "One database holds one cluster. Two clusters on one MongoDB take two names.",
    "shared_with": "Two applications on one database take each other's tasks, as a rule by accident. Each names the "
    "other: see [applications](servers.md#applications-on-one-database).",
    "broker_url": "Where `recovery up` starts Valkey. Two clusters on one Redis take two database numbers.",
    "message_key": "For a Redis that others can write to: see [security](security.md).",
    "accept_unsigned": "What is not signed is what the key is for.",
    "data_dir": "Beside your code, and in no one's way. Only `recovery up` uses it.",
    "mongo_cache_gb": "MongoDB would take half of the memory; on a developer's machine it shares that with the "
    "workers. Only `recovery up` uses it.",
    "heartbeat_interval": "With the timeout below a dead machine is known in 4 to 8 s. One small write per worker "
    "and beat.",
    "heartbeat_timeout": "Three missed beats: a worker that its machine holds up for a few seconds is not taken for "
    "dead. A heartbeat has two tries, of a quarter of this each, so one that fails leaves time for the next.",
    "scan_interval": "Adds at most this to every recovery by deadline. A scan that finds nothing costs a few index "
    "look-ups.",
    "scan_batch": "One update and one read per so many records. Larger batches gain little and hold more in memory.",
    "apply_timeout": "Applying takes milliseconds; one that is not done by now was cut off.",
    "message_timeout": "Long enough for a busy queue to drain a burst; a message that is lost costs this once.",
    "idle_timeout": "The net under the nets: every step has a shorter deadline of its own. It doubles while a process "
    "is found healthy. A process type may have its own.",
    "events": "Off only to test that the deadlines alone are enough.",
    "scanners": "Off for a worker that should do nothing but tasks; some worker must have it on.",
    "canary": "It costs nothing while no drill runs. Off for a worker that is to do nothing but your tasks.",
    "drill_kill": "Whoever may start processes could have workers killed. On where something starts them again.",
    "batch_size": "Of more, each costs as much as of so many; and of a slot that is killed so many are run again, at "
    "most. 1: one by one.",
    "shutdown_grace": "Short enough for a deployment, long enough for short tasks to end. What does not end is given "
    "back at once, so a longer grace only saves work that would be done again.",
    "version_grace": "Longer than a rolling deployment takes to start its first worker. Longer if a person "
    "has to do it: see [upgrades](upgrades.md).",
    "metrics_port": "Each worker of a machine needs one of its own: 9101 to 9164 are tried in turn.",
    "metrics_host": "Not open to the network until you say so. `0.0.0.0` for a container.",
    "log_format": "What people read. For whoever collects logs there is [JSON](operations.md#logs-as-json).",
    "spark_master": "All cores of the machine that the sweep runs on; no Spark cluster is needed.",
    "spark_from": "Some ten seconds of one worker's time; of fewer Spark makes no shorter work.",
    "spark_memory": "Records are read in ranges, so memory does not grow with their number.",
    "sweep_interval": "The scanners see all that is overdue without it; a sweep is the check that nothing was "
    "forgotten, and once a day is plenty. It runs where a [worker serves Spark](operations.md#the-sweep). Give all "
    "workers and beats the same.",
    "sweep_repair": "A sweep that nobody watches had better repair what it finds; each repair is a compare-and-set.",
}

PREFERENCE_UNITS = {
    "max_work_timeouts": "attempts",
    "requeue_rate": "tasks a second",
    "retry_coefficient": "",
    "lost_coefficient": "",
}
PREFERENCE_REASONS = {
    "worker_timeout": "Longer than most tasks. It is what a hung task costs, not what a dead worker costs.",
    "accept_first": "A value is a value, whichever attempt brings it. Off where only the newest attempt may count.",
    "idempotent": "Tasks are done at least once whatever this says: a worker may be killed just before it could tell. "
    "Off for what must not be done twice, and is worth that a person looks instead.",
    "restart_after_work_timeout": "On or off where lost attempts are to be treated otherwise than `idempotent` says.",
    "max_work_timeouts": "One time-out is a deployment, three a bad night; ten in a row is a task that kills its "
    "workers.",
    "auto_heartbeat": "A function that hangs would never time out. On for one long call that can't beat by itself.",
    "task_timeout": "What only waits in a long queue should not fail. On where a result that comes too late is worth "
    "nothing.",
    "force_finish_after_task_timeout": "Work that is nearly done is mostly worth its end. On where somebody waits for "
    "an answer, whatever it is.",
    "lost_initial": "One loss is bad luck. Two in a row may be the task's doing, and then it should not be run hot.",
    "lost_coefficient": "Six losses in a row take half a minute between two attempts.",
    "lost_maximum": "Whoever repairs a machine should not wait longer for its tasks.",
    "requeue_rate": "A queue bears as many messages as there are tasks. On where what the actor calls bears less.",
    "retry": "A host that is away for a minute should cost a minute, not a process. Only what a catalogue knows as "
    "passing by itself is tried again.",
    "retry_initial": "Long enough for a restart or a failover to be over.",
    "retry_coefficient": "Rather many tries in the first hour, and one an hour in the end.",
    "retry_jitter_least": "None is needed.",
    "retry_jitter_most": "What failed together, since one server was away, does not come back together.",
    "retry_maximum": "The jitter is within it.",
    "retry_total": "A night and the morning in which somebody looks.",
    "idle_timeout": "The net under the nets. Shorter for a type whose processes are short.",
    "process_timeout": "How long is too long only you know.",
    "break_after_process_timeout": "A late process is mostly worth its end; that it is late is told.",
    "versions": "Most changes of code suit processes that run. On where a process must not see two versions.",
    "markers": "What a person starts is to be tried. On where the next one would fail for the same.",
    "on_failure": "Scheduled types leave markers, others do nothing. `disable` where no process of the type may go on.",
}
PREFERENCE_DEFAULTS = {
    "idle_timeout": "`RECOVERY_IDLE_TIMEOUT`",
    "restart_after_work_timeout": "as `idempotent`",
    "retry": "`True`",
    "retry_initial": f"`{DEFAULT.initial}` s",
    "retry_coefficient": f"`{DEFAULT.coefficient}`",
    "retry_jitter_least": f"`{DEFAULT.jitter[0]}` s",
    "retry_jitter_most": f"`{DEFAULT.jitter[1]}` s",
    "retry_maximum": f"`{DEFAULT.maximum}` s",
    "retry_total": f"`{DEFAULT.total}` s",
}
"""Defaults that do not stand in the model."""


def settings_tables() -> str:
    """A table for each group of settings."""
    parts = []
    for title, names in GROUPS.items():
        rows = [_setting(name, Settings.model_fields[name]) for name in names]
        head = ("Setting", "Default", "Meaning", "Why this default")
        parts.append(f"### {title}\n\n{_table(head, rows)}")
    return "\n\n".join(parts)


def preferences_table(kind: type[ActorPreferences | ProcessTypePreferences]) -> str:
    """The table of what an actor or a process type may be told."""
    meanings = _field_docstrings(RetrySettings) | _field_docstrings(kind)
    rows, fields = [], {field.name: field for field in dataclasses.fields(kind)}
    for field in (fields[name] for name in setting_names(kind)):
        unit = _unit(field.default, PREFERENCE_UNITS.get(field.name))
        default = PREFERENCE_DEFAULTS.get(field.name, f"`{field.default}`{unit}")
        meaning = " ".join(meanings[field.name].split())
        rows.append((f"`{field.name}`", default, meaning, PREFERENCE_REASONS[field.name]))
    return _table(("Setting", "Default", "Meaning", "Why this default"), rows)


def own_work_table() -> str:
    """What of our own is tried again, and how."""
    rows = []
    for one in own_work.ALL:
        shown = "{:g}".format if "timeouts" in one.name else show_duration
        delay = shown(one.policy.initial) if one.policy.initial else "at once"
        if one.policy.maximum > one.policy.initial > 0:
            begins = f" from the {one.free}th failure on" if one.free > 1 else ""
            delay += f", growing{begins} by {one.policy.coefficient:g} up to {shown(one.policy.maximum)}"
        ends = [f"{one.tries} tries" if one.tries else "", show_duration(one.seconds) if one.seconds else ""]
        rows.append((one.name, delay, " or ".join(filter(None, ends))))
    return _table(("What", "Delay", "Fails after"), rows)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "settings.md": {"settings": settings_tables},
    "actors.md": {
        "actor settings": lambda: preferences_table(ActorPreferences),
        "process type settings": lambda: preferences_table(ProcessTypePreferences),
    },
    "servers.md": {"roles": roles.table},
    "retry.md": {"own work": own_work_table},
}


def written(name: str) -> str:
    """The page of this name with its generated parts brought up to date."""
    page = (DOCS / name).read_text()
    for part, make in PARTS[name].items():
        begin, end = f"<!-- generated: {part} -->\n", f"<!-- end of {part} -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{make()}\n\n{end}{rest.split(end)[1]}"
    return page


def _setting(name: str, field: DeclaredSetting) -> tuple[str, str, str, str]:
    times = (DURATION, INTERVAL_OR_NEVER)
    if field.form in times and field.default is not None:
        default = f"`{show_duration(field.default)}`"
    else:
        default = (
            "unset" if field.default is None else f"`{_plain(field.default)}`{_unit(field.default, UNITS.get(name))}"
        )
    limits = _limits(field, show_duration if field.form in times else str)
    meaning = f"{field.description}{f' {limits}' if limits else ''}"
    return f"`{PREFIX}{name.upper()}`", default, meaning, REASONS[name]


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unit(default: Any, unit: str | None) -> str:
    if unit is None:
        unit = "s" if isinstance(default, float) else ""
    return f" {unit}" if unit else ""


def _limits(field: DeclaredSetting, shown: Callable[[float], str]) -> str:
    signs = {"ge": "at least", "gt": "over", "le": "at most"}
    found = [
        f"{signs[name]} {_number(value, shown)}" for name in signs if (value := field.limits.get(name)) is not None
    ]
    if pattern := field.limits.get("pattern"):
        found.append(f"matches `{pattern}`")
    return f"({', '.join(found)})" if found else ""


def _number(value: Any, shown: Callable[[float], str]) -> str:
    if value == LONGEST:
        return "10 years"
    return f"{value:,}" if value > 65535 else shown(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _field_docstrings(cls: type) -> dict[str, str]:
    """{field: the text that stands under it}."""
    body = ast.parse(inspect.getsource(cls)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(text, ast.Constant):
                found[statement.target.id] = str(text.value)
    return found


if __name__ == "__main__":
    for page in PARTS:
        (DOCS / page).write_text(written(page))
    roles.SCRIPT.write_text(roles.script())
