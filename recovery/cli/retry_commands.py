"""`recovery retry`: what becomes of an error, and when a policy tries again. Servers are asked for settings alone."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import (
    BAD,
    DURATION,
    AppOption,
    Commands,
    JsonOption,
    duration,
)
from recovery.cli.connection import connect
from recovery.cli.output import console, messages, print_json
from recovery.cli.shell_completion import complete_actor, complete_type
from recovery.errors import InputError, RecoveryError
from recovery.settings import load
from recovery.wording import show_age, show_duration

if TYPE_CHECKING:
    from recovery.records import RetryOptions
    from recovery.retry import Backoff, Catalogue, ErrorExplanation

GROUP = """Ask what would become of an error, and when it would be tried again.

Example: [bold]recovery retry explain --error pymongo.errors.NotPrimaryError[/bold]
"""
EXPLAIN = """Say what an error means: its reason and code, whether it would be tried again and why, and the delay.

Give one of --error, --code, --reason, and --catalogue with --service and --status. An error and a code are taken as a
task's, which is tried again by the default policy; a reason and an answer of a server as a call's, which is tried again
by best effort.

Where RECOVERY_APP or --app names an application, what it says of its errors counts; so do the catalogues of installed
distributions.

Example: [bold]recovery retry explain --catalogue couchbase --service kv --status 0x86[/bold]
"""
DELAYS = """Show the delays of a policy, until its total duration is over.

The default one, with what the options say; or, by --actor and --type, that which holds now of an actor, in processes of
a type. Only for those MongoDB is asked.

Example: [bold]recovery retry delays --actor replicate --seed 1[/bold]

Example: [bold]recovery retry delays --initial 10s --coefficient 2 --maximum 10m --total 1h --seed 1[/bold]
"""

MAX_DELAYS = 1000
"""Delays that are shown: more than anybody reads."""

commands = Commands("retry", GROUP)


@commands.add(EXPLAIN)
def explain(  # noqa: PLR0913
    error: Annotated[str | None, typer.Option(metavar="CLASS", help="An exception, package.module.Name.")] = None,
    code: Annotated[int | None, typer.Option(metavar="NUMBER", help="An error code.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="NAME", help="A reason, such as KV_LOCKED.")] = None,
    catalogue: Annotated[str | None, typer.Option(metavar="NAME", help="Whose answer: couchbase.")] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the answer: kv, query, analytics, search, view.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="The answer's status or code; 0x86 as well.")
    ] = None,
    operation: Annotated[str, typer.Option(metavar="NAME", help="What was asked, such as unlock.")] = "",
    text: Annotated[str, typer.Option(help="The answer's text, or the error's.")] = "",
    error_map_retry: Annotated[
        bool | None, typer.Option("--error-map-retry", help="Couchbase's error map says that it may be tried again.")
    ] = None,
    idempotent: Annotated[
        bool | None,
        typer.Option(
            "--idempotent/--not-idempotent",
            help="Whether doing it twice is the same as once. Default: yes of a task; of a call as its list says.",
        ),
    ] = None,
    attempt: Annotated[int, typer.Option(min=0, metavar="N", help="Retries before this one.")] = 0,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of the delay's jitter.")] = None,
    app: AppOption = None,
    json: JsonOption = False,
) -> None:
    from random import Random

    from recovery.retry import explain_code, explain_couchbase, explain_error, explain_reason
    from recovery.retry.catalogues.couchbase import is_idempotent

    given = [name for name, value in _asked(error, code, reason, catalogue).items() if value is not None]
    if len(given) != 1:
        told = ", ".join(given) or "none"
        raise InputError(f"give one of --error, --code, --reason and --catalogue, not {told}")
    of_task, random = idempotent is not False, Random(seed)
    if error is not None:
        found = explain_error(
            error, text=text, idempotent=of_task, attempt=attempt, random=random, catalogues=_catalogues(app)
        )
    elif code is not None:
        found = explain_code(code, idempotent=of_task, attempt=attempt, random=random, catalogues=_catalogues(app))
    elif reason is not None:
        found = explain_reason(reason, idempotent=bool(idempotent), attempt=attempt)
    else:
        if catalogue != "couchbase":
            raise InputError(f"--catalogue {catalogue}: only couchbase is asked by its answers; give --error or --code")
        if service is None or status is None:
            raise InputError("--catalogue couchbase: give its --service and --status, too")
        twice = is_idempotent(service, operation) if idempotent is None else idempotent
        found = explain_couchbase(
            service, _number(status), operation=operation, text=text, error_map_retry=error_map_retry,
            idempotent=twice, attempt=attempt,
        )  # fmt: skip
    if json:
        print_json("retry explain", found.as_dict())
    else:
        for line in _lines(found):
            console().print(line)
    raise typer.Exit(0 if found.retry else BAD)


@commands.add(DELAYS)
def delays(  # noqa: PLR0913
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", help="As it is set for this actor.", autocompletion=complete_actor)
    ] = None,
    process_type: Annotated[
        str | None,
        typer.Option("--type", metavar="NAME", help="And for this process type.", autocompletion=complete_type),
    ] = None,
    initial: Annotated[
        float | None, typer.Option(parser=duration, metavar=DURATION, help="The first delay; 60s.")
    ] = None,
    coefficient: Annotated[
        float | None, typer.Option(help="Each delay is so many times the one before; 1.2.", show_default=False)
    ] = None,
    jitter: Annotated[
        tuple[str, str],
        typer.Option(
            metavar="LEAST MOST", help="What is added, at random between the two; 0s 30s.", show_default=False
        ),
    ] = ("", ""),
    maximum: Annotated[
        float | None, typer.Option(parser=duration, metavar=DURATION, help="The longest delay, with its jitter; 1h.")
    ] = None,
    total: Annotated[
        float | None, typer.Option(parser=duration, metavar=DURATION, help="Of all delays together; 24h.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of the jitter: the same delays again.")] = None,
    json: JsonOption = False,
) -> None:
    from random import Random

    from recovery.records import RetryOptions

    given = RetryOptions(
        initial=initial,
        coefficient=coefficient,
        jitter_least=duration(jitter[0]) if jitter[0] else None,
        jitter_most=duration(jitter[1]) if jitter[1] else None,
        maximum=maximum,
        total=total,
    )
    policy = _policy(given, actor, process_type)
    seed = Random().randrange(2**32) if seed is None else seed
    found = list(islice(policy.delays(Random(seed)), MAX_DELAYS + 1))
    shown = found[:MAX_DELAYS]
    if json:
        print_json(
            "retry delays",
            {"seed": seed, "delays": shown, "more": len(found) > MAX_DELAYS, "maximum": policy.maximum},
        )
        return
    out, passed = console(), 0.0
    out.print("retry  delay   since the first failure")
    for number, delay in enumerate(shown, 1):
        passed += delay
        out.print(f"{number:>5}  {show_age(delay):<6}  {show_age(passed)}")
    out.print(f"seed {seed}{'; and more' if len(found) > MAX_DELAYS else ''}", style="dim")


def _policy(given: RetryOptions, actor: str | None, process_type: str | None) -> Backoff:
    """Return the policy that holds: of the options given, then of the settings.

    Raises InputError if options contradict each other, a name is unknown, or retry is off.
    """
    from recovery.engine.operators.overrides import ActorOverrides, ProcessTypeOverrides
    from recovery.retry import Backoff
    from recovery.retry.policy import check_policy, check_values

    check_values(given, "recovery retry delays")
    held = []
    if actor is not None:
        held.append(ActorOverrides(connect(needs_redis=False)).get(actor).effective.retry_options())
    if process_type is not None:
        held.append(ProcessTypeOverrides(connect(needs_redis=False)).get(process_type).effective.retry_options())
    if not held:
        check_policy(given, "recovery retry delays")
    enabled = next((one.enabled for one in held if one.enabled is not None), True)
    if not enabled:
        raise InputError(f"{actor or process_type}: retry is off, so nothing is tried again")
    return Backoff.of(given, *held)


def _asked(
    error: str | None, code: int | None, reason: str | None, catalogue: str | None
) -> dict[str, str | int | None]:
    return {"--error": error, "--code": code, "--reason": reason, "--catalogue": catalogue}


def _catalogues(app: str | None) -> tuple[Catalogue, ...]:
    """Return the catalogues of the application, if one is named. Raises an error if it was named by --app and can't be
    loaded."""
    from recovery.retry import in_use

    try:
        from recovery.engine import load_app

        if path := load(app=app).app:
            return tuple(load_app(path).catalogues.all)
    except RecoveryError as error:
        if app is not None:
            raise
        messages().print(f"without what the application says of its errors: {error}", style="dim")
    return tuple(in_use().all)


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"--status {text}: must be a number, for example 4040 or 0x86") from None


def _lines(found: ErrorExplanation) -> list[str]:
    delay = show_duration(round(found.delay_seconds, 3)) if found.delay_seconds is not None else "–"
    if found.always_retry:
        flags = "is always retried"
    elif found.reason == "UNKNOWN":
        flags = "is never retried"
    else:
        flags = "may be retried" if found.allows_non_idempotent_retry else "may be retried only if it is idempotent"
    return [
        f"reason  {found.reason}; {flags}",
        f"code    {found.code}, {found.error_class}",
        f"retry   {'yes, after ' + delay if found.retry else 'no'}",
        f"why     {found.why}",
    ]
