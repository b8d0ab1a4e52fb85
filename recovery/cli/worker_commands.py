"""`recovery worker` and `recovery beat`: Celery's own commands, with the settings handed on. `recovery ping`.

This process becomes Celery's (`exec`), so both ways of starting a worker run the same code from the first import
on; prometheus-client, for one, must not have been imported before `workers` has told it where to keep its files.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from recovery.cli import first_process
from recovery.cli.command_options import BAD, DURATION, AppOption, Commands, JsonOption, duration
from recovery.cli.output import console, print_json
from recovery.errors import InputError, SettingsError
from recovery.installed import advice
from recovery.setting_forms import LogFormat
from recovery.setting_sources import PREFIX
from recovery.settings import Settings, load
from recovery.wording import show_duration

log = logging.getLogger(__name__)

WORKER_HELP = """Serve your application: run the tasks of its actors, and do its part of the recovery.

Example: [bold]recovery worker --app shop.orders:app --concurrency 4[/bold]

Example: [bold]recovery worker --app shop.orders:app --queues charge_card,send_mail --name mail[/bold]
"""
BEAT_HELP = """Nudge the workers' scanners every RECOVERY_SCAN_INTERVAL. Any number of beats may run.

Example: [bold]recovery beat --app shop.orders:app[/bold]
"""

PING_HELP = """Ask a worker of this machine whether its main loop answers: for health checks. Leaves nothing behind.

Ends with 0 if it does, 1 if it does not within the time given, 2 if Redis does not answer.

Example: [bold]recovery ping --name mail[/bold]
"""

CELERYS_OWN = ("CELERY_WORKDIR", "CELERY_VERSION")
"""Environment variables that the command `celery` takes for options before it loads our application, which ignores all
others."""
CELERY_APP = "recovery.worker.app"
SPARK = "spark"
FIRST = 1
"""The pid of the first process of a container, to which all processes are given whose parents have ended."""
MIN_PING, MAX_PING = 0.1, 60.0
"""Seconds that a ping may wait."""

commands = Commands()


class Pool(StrEnum):
    """Celery's pools that are supported."""

    PREFORK = "prefork"
    THREADS = "threads"


class LogLevel(StrEnum):
    """Celery's log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LevelOption = Annotated[LogLevel, typer.Option(metavar="LEVEL", help="What is logged: debug, info, warning or error.")]


@commands.add(WORKER_HELP)
def worker(
    app: AppOption = None,
    queues: Annotated[
        str | None,
        typer.Option("--queues", "-Q", help="Actors to serve, with commas; default: all. 'spark': sweeps."),
    ] = None,
    concurrency: Annotated[
        int | None,
        # Each is a process of 60 MB and more.
        typer.Option(
            "--concurrency", "-c", min=1, max=1000, help="Tasks at once; default: one per CPU that it may use."
        ),
    ] = None,
    pool: Annotated[Pool, typer.Option(help="Processes, or threads of one process.")] = Pool.PREFORK,
    name: Annotated[str, typer.Option("--name", "-n", help="The worker's name; its host is added.")] = "worker",
    loglevel: LevelOption = LogLevel.INFO,
    celery_app: Annotated[
        str, typer.Option(hidden=True, help="Its Celery application, for `workers.app`.")
    ] = CELERY_APP,
) -> None:
    settings = _settings(app)
    options = ["--hostname", f"{_checked(name)}@%h", "--pool", pool.value, "--loglevel", loglevel.value]
    # What Celery's workers tell each other is not needed: Redis holds hints, MongoDB knows who lives.
    options += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    if concurrency is not None:
        options += ["--concurrency", str(concurrency)]
    if queues is not None:
        options += ["--queues", ",".join(_known(queues, settings))]
    become_celery("worker", options, settings, celery_app)


# At INFO Celery tells of every nudge: a line a second.
@commands.add(BEAT_HELP)
def beat(app: AppOption = None, loglevel: LevelOption = LogLevel.WARNING) -> None:
    settings = _settings(app)
    options = ["--scheduler", "recovery.worker.beat:QuietScheduler", "--pidfile=", "--loglevel", loglevel.value]
    become_celery("beat", options, settings)


@commands.add(PING_HELP)
def ping(
    name: Annotated[str, typer.Option("--name", "-n", help="The worker's name.")] = "worker",
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar=DURATION, help="How long to wait, up to 1m.")
    ] = "5s",  # type: ignore[assignment]
    json: JsonOption = False,
) -> None:
    import socket

    from recovery.queue import Broker

    if not MIN_PING <= timeout <= MAX_PING:
        raise InputError(f"--timeout {show_duration(timeout)}: must be {show_duration(MIN_PING)} to 1m")
    broker, worker_name = Broker(load().broker_url), f"{_checked(name)}@{socket.gethostname()}"
    broker.check()
    answers = broker.answers(worker_name, timeout)
    if json:
        print_json("ping", {"worker": worker_name, "answers": bool(answers)})
    else:
        said = "answers" if answers else f"does not answer within {show_duration(timeout)}"
        console().print(f"{worker_name} {said}")
    raise typer.Exit(0 if answers else BAD)


def _checked(name: str) -> str:
    if not name or not name.isprintable() or set(name) & set("@/% "):
        raise InputError(f"--name {name!r}: must be a word without '@', '/' and '%'")
    return name


def become_celery(command: str, options: Sequence[str], settings: Settings, celery_app: str = CELERY_APP) -> None:
    """Turn this process into `celery -A recovery.worker.app COMMAND`, or into an init that runs it."""
    if found := advice(Path.cwd()):
        log.warning("%s", found)
    sys.stdout.flush()
    sys.stderr.flush()
    # Its banner is no line of JSON.
    quiet = ["--quiet"] if settings.log_format is LogFormat.JSON else []
    arguments = [sys.executable, "-m", "celery", "-A", celery_app, *quiet, command, *options]
    if os.getpid() == FIRST:
        arguments = [sys.executable, "-I", "-S", first_process.__file__, *arguments]
    # All else it reads where we read it: a password that stands in a file stays out of its environment, which all that
    # actors start inherits.
    environment = {name: value for name, value in os.environ.items() if name not in CELERYS_OWN}
    os.execve(sys.executable, arguments, {**environment, f"{PREFIX}APP": str(settings.app)})


def _settings(app: str | None) -> Settings:
    settings = load(app=app)
    if not settings.app:
        raise SettingsError("no application: give --app package.module:name, or set RECOVERY_APP")
    return settings


def _known(queues: str, settings: Settings) -> list[str]:
    """Return the queues of a list with commas. Raises InputError for a queue that would never get a message."""
    from recovery.engine import load_app

    recovery_app = load_app(settings.app)
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise InputError(f"--queues {queues!r}: names no queue")
    for name in names:
        if name != SPARK:
            recovery_app.find_actor(name)
    return names
