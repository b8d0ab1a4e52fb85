"""Who did what, and why: every command that changes something, tried, and looked for in the audit log."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from recovery import Settings
from recovery.cli import sweep_commands
from recovery.cli.main import app
from recovery.records import AuditEntry, Worker
from recovery.store import Store
from tests.cli import schemas
from tests.cli.command import recovery, refused
from tests.cli.every import COMMANDS, ELSEWHERE, SERVERS, all_commands
from tests.emptied import Kept

pytestmark = pytest.mark.thorough

WHY = "the auditors ask"
DO_IT = ("--yes", "--repair")
"""Options without which a command only says what it would do."""
STARTERS = {"start", "run"}
"""They start processes, which have their own records; to write the audit log is an operator's right."""
WHAT = {
    "broken abort --waiting-for": "abort waiting",
    "check": "check repair",
    "restart": "process restart",
    "restart --yes": "process restart",
    "abort": "process abort",
    "abort --yes": "process abort",
}
"""{command: what it is called in the log} where that is not its name."""
_COMMANDS = all_commands()


def options(name: str) -> set[str]:
    return {option for param in _COMMANDS[name.partition(" --")[0]].params for option in param.opts}


OTHERS = [name for name in COMMANDS if "--reason" not in options(name) or name == "retry explain"]  # of an error
REASONED = [name for name in COMMANDS if name not in OTHERS]


def doing(name: str, line: Sequence[str]) -> list[str]:
    """A command's line as it does what it is for, with our reason and with no other."""
    kept = list(line)
    if "--reason" in kept:
        place = kept.index("--reason")
        del kept[place : place + 2]
    wanted = [option for option in DO_IT if option in options(name) and option not in kept]
    return [*kept, *(wanted if kept[:2] != ["operation", "start"] else ()), "--reason", WHY]


def entries(settings: Settings) -> list[AuditEntry]:
    return Store(settings).audit_log.newest(1000)


@pytest.mark.parametrize("name", REASONED)
def test_who_takes_a_reason_is_on_record_with_it(name: str, env: dict[str, str], lasting: Settings) -> None:
    before = {entry.id for entry in entries(lasting)}
    done = recovery(*doing(name, COMMANDS[name]), env=env)
    assert done.returncode in (0, 1), done.stderr
    what = WHAT.get(name, name.partition(" --")[0].replace("process-type", "process type"))
    (entry,) = (one for one in entries(lasting) if one.id not in before and one.what.startswith(what))
    assert (entry.why, entry.who) == (WHY, f"{getpass.getuser()}@{socket.gethostname()}")
    assert entry.origin.endswith(f"on {socket.gethostname()}") and entry.target and entry.at
    assert entry.outcome and not entry.outcome.startswith(("refused", "cut off")), entry


def test_what_takes_none_changes_nothing(env: dict[str, str], kept: Kept) -> None:
    for name in OTHERS:
        if name not in STARTERS:
            recovery(*COMMANDS[name], env=env)
            assert not kept.changed(), name


def test_a_sweep(env: dict[str, str], lasting: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is ordered; nobody is waited for."""
    worker = Worker(id="s", name="s", host="h", pid=1, pid_started=1, queues=("spark",), spark=True)
    Store(lasting).workers.beat(worker, 60)
    Store(lasting).catch_up(10)
    monkeypatch.setattr(sweep_commands, "_followed", lambda *_, **__: None)
    CliRunner().invoke(app, ["sweep", "--repair", "--reason", WHY], env=env)
    (entry,) = entries(lasting)[:1]
    assert (entry.what, entry.target, entry.why) == ("operation start", "repair", WHY)


def test_what_is_refused_is_on_record(env: dict[str, str], lasting: Settings) -> None:
    assert "did you mean 'order'?" in refused("schedule", "add", "hourly", "oder", "schedule=1h", env=env)
    assert refused("actor", "block", "nosuch", "--reason", WHY, env=env)
    found = [(entry.what, entry.target, entry.why, (entry.outcome or "")[:9]) for entry in entries(lasting)[:2]]
    assert found == [("actor block", "nosuch", WHY, "refused: "), ("schedule add", "hourly", "", "refused: ")]


def test_what_was_asked_for_is_on_record(env: dict[str, str]) -> None:
    recovery("schedule", "add", "hourly", "order", "schedule=1h", env=env)
    recovery("schedule", "set", "hourly", "jitter=1m", env=env)
    found = schemas.read("audit", recovery("audit", "--limit", "2", "--json", env=env).stdout)["entries"]
    assert [entry["details"] for entry in found] == [
        {"settings": {"jitter": "1m"}},
        {"type": "order", "settings": {"schedule": "1h"}},
    ]


def test_a_reason_without_a_repair(env: dict[str, str], kept: Kept) -> None:
    assert "--reason goes with --repair" in refused("check", "order-4711", "--reason", WHY, env=env)
    assert not kept.changed()


def test_none_is_left_out() -> None:
    tried = {name.partition(" --")[0] for name in (*REASONED, *OTHERS)}
    assert tried == _COMMANDS.keys() - ELSEWHERE - SERVERS
    assert "--reason" in options("sweep"), "an operation as others are"
