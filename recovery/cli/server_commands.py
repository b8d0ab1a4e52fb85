"""`recovery up` and `recovery init`: the servers."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from recovery.cli.command_options import AppOption, Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.output import Labelled, console, print_json
from recovery.errors import IndexConflict, InputError, ServerError, ServerUnavailable
from recovery.settings import load
from recovery.wording import count

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.stack import ChildProcess, Stack

UP_HELP = """Start MongoDB and Valkey for development, and workers if --app or --workers is given. Ctrl-C stops all.

Data is kept in the folder .recovery (RECOVERY_DATA_DIR). The servers listen on 127.0.0.1 only, by default where
all commands look for them.

Example: [bold]recovery up --app shop.orders:app --workers 2[/bold]
"""
INIT_HELP = """Check the servers, and create the collections and indexes that are missing.

May be run again at any time; it changes nothing that is there, except saved searches and scheduled collections that
have an age with a sign, such as ended:<90d: once no worker of an earlier version lives, these are rewritten in the form
that names their meaning. Workers create
what is missing when they start. Where MongoDB's
users have roles, run it as an operator, before the workers of a new version start. With --roles it makes the roles
recoveryReader, recoveryClient, recoveryWorker and recoveryOperator as well, or brings them up to date; that takes an
administrator of MongoDB's users.

Example: [bold]recovery init[/bold]
"""

LOOK_EVERY = 0.5

commands = Commands()


@commands.add(UP_HELP)
def up(
    app: AppOption = None,
    workers: Annotated[
        int | None, typer.Option(min=0, max=100, help="Workers of your application; default: 1 with --app, else 0.")
    ] = None,
    mongo_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of MongoDB.")] = 27017,
    redis_port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Valkey.")] = 6379,
) -> None:
    from recovery.engine import load_app
    from recovery.stack import Stack

    settings = load(app=app)
    # RECOVERY_APP is set in the environment for all commands: it does not say that workers are wanted here.
    wanted = workers if workers is not None else int(app is not None)
    if app is not None or (wanted and settings.app):
        load_app(settings.app)
    elif wanted:
        raise InputError(f"--workers {workers}: which application? Give --app package.module:name, or set RECOVERY_APP")
    if mongo_port == redis_port:
        raise InputError(f"--mongo-port {mongo_port}, --redis-port {redis_port}: two servers can't have one port")
    out = console()
    # A pipe and not an event: a handler that sets an event for which this thread waits just now would wait for itself.
    stopped, stop = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(stop, b"."))
    stack = Stack(
        settings.data_dir, mongo_port=mongo_port, redis_port=redis_port, mongo_cache_gb=settings.mongo_cache_gb
    )
    with stack:
        for name, value in stack.environment().items():
            out.print(f"export {name}='{value}'")
        out.print(f"logs in {stack.data_dir / 'logs'}", style="dim")
        children = _start_workers(stack, settings.app, wanted, out)
        out.print("running; Ctrl-C stops everything", style="green")
        _watch(stack, children, stopped, out)
        out.print("stopping")


def _start_workers(stack: Stack, app: str | None, workers: int, out: Console) -> list[ChildProcess]:
    if not app or not workers:
        return []

    children = [stack.start_worker(app) for _ in range(workers)]
    out.print(f"{count(len(children), 'worker')} and a beat for {app}")
    return [*children, stack.start_beat(app)]


def _watch(stack: Stack, children: list[ChildProcess], stopped: int, out: Console) -> None:
    """Wait until a signal is written to the pipe `stopped`. Report workers that end before that. Raises
    ServerUnavailable when a server ends."""
    while not select.select([stopped], [], [], LOOK_EVERY)[0]:
        for child in [child for child in children if not child.running]:
            children.remove(child)
            lines = "\n  ".join(child.last_lines(10))
            out.print(Text(f"{child.name} ended with code {child.exit_code}:\n  {lines}", "red"))
        for server in (stack.mongod, stack.valkey):
            if server is not None and not server.running:
                raise ServerUnavailable(f"{server.name} on {server.address} ended; its log is {server.log}")


@commands.add(INIT_HELP)
def init(
    with_roles: Annotated[bool, typer.Option("--roles", help="Make roles for MongoDB's users, too.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.engine.operators.saved_searches import (
        rewrite_signed_ages,
        with_signed_ages,
        workers_that_need_signs,
    )
    from recovery.store import roles, schema

    resources = connect()
    store, out = resources.store, console()
    before, missing = store.overview.collections(), store.layout.missing()
    try:
        store.layout.create()
    except IndexConflict as error:
        raise ServerError(_different(store.layout.different(), error)) from None
    restored = {name: _of_collection(name, missing) if name in before else [] for name in schema.ALL}
    if with_roles:
        store.layout.create_roles()
    selections = [stored.name for stored in rewrite_signed_ages(resources)]
    signed = [stored.name for stored in with_signed_ages(resources)]
    if json:
        created = {name: {"created": name not in before, "restored": restored[name]} for name in restored}
        found = {"database": resources.settings.database, "collections": created, "roles": with_roles}
        found |= {"rewritten": selections, "not_rewritten": signed}
        print_json("init", found)
        return
    out.print(f"MongoDB and Redis answer; database {resources.settings.database}")
    if said := store.server.not_followed():
        out.print(f"recovery names its own read and write concerns; these have no effect: {', '.join(said)}")
    rows = []
    for name in restored:
        state = f"was there, with about {count(before[name], 'record')}" if name in before else "created"
        if restored[name]:
            state += f"; restored: {', '.join(restored[name])}"
        rows.append((f"  {name}", state))
    out.print(Labelled(rows, max(map(len, restored)) + 4))
    if selections:
        out.print(f"rewritten, with the same meaning: {', '.join(selections)}")
    if signed:
        names = ", ".join(workers_that_need_signs(resources))
        why = f"while workers of an earlier version live, which could not read them: {names}" if names else "this time"
        out.print(f"not rewritten {why}; run `recovery init` again for {', '.join(signed)}")
    if with_roles:
        out.print(f"roles {', '.join(roles.ROLES)} are up to date")


def _different(indexes: Mapping[str, str], error: Exception) -> str:
    """Return what to do about indexes that are in the way, given the command that drops each."""
    if not indexes:  # in the way under another name, which MongoDB tells
        said = str(error).partition(", full error")[0]
        return f"an index is in the way of ours: {said}. Drop it, then run `recovery init` again"
    names, drops = ", ".join(indexes), "; ".join(indexes.values())
    verb, them = ("is", "it") if len(indexes) == 1 else ("are", "them")
    advice = f"drop {them} ({drops}), then run `recovery init`, which makes {them} again"
    return f"{names} {verb} there, but not as should be: {advice}"


def _of_collection(name: str, missing: Sequence[str]) -> list[str]:
    """Return what was missing of a collection that was there: its validator, and indexes by name."""
    found = ["validator"] if f"validator of {name}" in missing else []
    start = f"index {name}."
    return found + [f"index {one.removeprefix(start)}" for one in missing if one.startswith(start)]
