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
    "app": "There is no sensible default. Workers, beat and `recovery start` need it.",
    "mongo_uri": "`recovery up` starts MongoDB at this address.",
    "database": "A database holds one cluster. Two clusters on one MongoDB need two names.",
    "shared_with": "Two applications on one database run each other's tasks, usually by accident. Each must name the "
    "other: see [applications](servers.md#applications-on-one-database).",
    "broker_url": "`recovery up` starts Valkey at this address. Two clusters on one Redis need two database numbers.",
    "message_key": "Only needed if others can write to your Redis: see [security](security.md).",
    "accept_unsigned": "The key protects against unsigned messages.",
    "data_dir": "It is next to your code, and hidden. Only `recovery up` uses it.",
    "mongo_cache_gb": "MongoDB's own default is half of the memory, which it shares with the workers on a developer's "
    "machine. Only `recovery up` uses it.",
    "heartbeat_interval": "With the timeout below, a dead machine is detected within 4 to 8 s. A heartbeat is one "
    "small write.",
    "heartbeat_timeout": "Three missed heartbeats: a worker that its machine delays for a few seconds does not count "
    "as lost. A heartbeat is tried twice, with a quarter of this time each, so a failed one leaves time for the next.",
    "scan_interval": "Recovery by deadline is delayed by at most this time. A scan that finds nothing costs a few "
    "index look-ups.",
    "scan_batch": "Each batch costs one update and one read. Larger batches gain little and need more memory.",
    "apply_timeout": "A result is applied within milliseconds. If it takes longer than this, it was interrupted.",
    "message_timeout": "Long enough for a busy queue to drain a burst. A lost message delays its task by this time.",
    "idle_timeout": "This is the last safety net, because each step has a shorter deadline of its own. The time "
    "doubles while a process is found healthy. A process type may have its own.",
    "events": "Turn it off only to test that the deadlines alone are enough.",
    "scanners": "Turn it off for a worker that should only run tasks. At least one worker must have it on.",
    "canary": "It costs nothing while no drill runs. Turn it off for a worker that should only run your tasks.",
    "drill_kill": "Off, because anybody who may start processes could have workers killed. Turn it on if workers are "
    "restarted automatically.",
    "batch_size": "Larger batches are no more efficient. When a slot is killed, up to this many tasks run again.",
    "shutdown_grace": "Short enough for a deployment, and long enough for short tasks to end. Other tasks are given "
    "back at once, so a longer time only saves work that would be repeated.",
    "version_grace": "Longer than a rolling deployment needs to start its first worker. Make it longer if a person "
    "must start it: see [upgrades](upgrades.md).",
    "metrics_port": "Each worker of a machine needs its own port: 9101 to 9164 are tried in turn.",
    "metrics_host": "Not reachable from the network unless you allow it. Use `0.0.0.0` in a container.",
    "log_format": "People read text. Log collectors can use [JSON](operations.md#logs-as-json).",
    "spark_master": "Uses all cores of the machine that runs the sweep. No Spark cluster is needed.",
    "spark_from": "One worker needs about ten seconds for these. For fewer processes Spark is not faster.",
    "spark_memory": "Records are read in ranges, so memory does not grow with their number.",
    "sweep_interval": "The scanners find everything overdue without a sweep. A sweep checks that nothing was "
    "forgotten, and once a day is enough. It needs a [worker that serves Spark](operations.md#the-sweep). Use the same "
    "value for all workers and beats.",
    "sweep_repair": "Nobody watches these sweeps, so they should repair. Each repair is a compare-and-set.",
}

PREFERENCE_UNITS = {
    "max_work_timeouts": "attempts",
    "requeue_rate": "tasks a second",
    "retry_coefficient": "",
    "lost_coefficient": "",
}
PREFERENCE_REASONS = {
    "worker_timeout": "Longer than most tasks. It delays the recovery of a hung task, not of a dead worker.",
    "accept_first": "A result is valid from any attempt. Turn it off if only the newest attempt may count.",
    "idempotent": "Tasks run at least once in any case, because a worker may be killed just before it reports the "
    "result. Turn it off for a task that must not run twice, so that a person decides instead.",
    "restart_after_work_timeout": "Set it if lost attempts should be handled differently from `idempotent`.",
    "max_work_timeouts": "One time-out may be a deployment, and three a bad night. Ten in a row mean that the task "
    "kills its workers.",
    "auto_heartbeat": "With it, a hung function would never time out. Turn it on for a single long call that can't "
    "send heartbeats itself.",
    "task_timeout": "A task that only waits in a long queue should not fail. Set it if a result is worthless when it "
    "comes too late.",
    "force_finish_after_task_timeout": "Work that is nearly done is usually worth finishing. Turn it on if somebody "
    "waits for an answer, even a failure.",
    "lost_initial": "One loss is bad luck. The task itself may cause two in a row, and then it should not be repeated "
    "at full speed.",
    "lost_coefficient": "After six losses in a row, the delay between two attempts is half a minute.",
    "lost_maximum": "A person who repairs a machine should not wait longer for its tasks.",
    "requeue_rate": "A queue can hold as many messages as there are tasks. Set it if a service that the actor calls "
    "can't handle them at once.",
    "retry": "A host that is down for a minute should delay a process by a minute, and not break it. Only errors that "
    "a catalogue classifies as transient are retried.",
    "retry_initial": "Long enough for a restart or a failover.",
    "retry_coefficient": "Many retries in the first hour, and finally one per hour.",
    "retry_jitter_least": "No minimum is needed.",
    "retry_jitter_most": "Tasks that failed together, because a server was down, are not retried at the same moment.",
    "retry_maximum": "It includes the jitter.",
    "retry_total": "It covers a night and the morning on which somebody looks.",
    "idle_timeout": "It is the last safety net. Make it shorter for a type whose processes are short.",
    "process_timeout": "Only you know how long is too long.",
    "break_after_process_timeout": "A late process is usually still worth finishing. Its lateness is logged and "
    "counted.",
    "versions": "Running processes survive most code changes. Turn it on if a process must not see two versions.",
    "markers": "Off by default: a process that a person starts should be tried. Turn it on if the next process would "
    "fail for the same reason.",
    "on_failure": "Scheduled types leave markers, others do nothing. Use `disable` if no process of the type may "
    "continue.",
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
