"""Checks of this machine: its packages, Java, files with passwords, and its clock.

All deadlines are set and compared by MongoDB's clock alone, so no difference between clocks breaks recovery. What
becomes wrong is what people read: process ids sort by the clock of the machine that made them, and logs of two machines
are laid side by side. From APART on their order is wrong by more than a step of a process takes. From FAR_APART on
nobody sets this clock: it is off by a whole first look at a process (`idle_timeout`), and a message with an expiry (a
sweep's) counts as expired at once, or never.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from recovery.certificates import of_mongodb, of_redis
from recovery.engine import Resources
from recovery.errors import SparkUnavailable
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, warning
from recovery.installed import DISTRIBUTION
from recovery.records import Worker
from recovery.setting_sources import CONFIG
from recovery.settings import Settings
from recovery.sweep import java

DRIVERS = ("celery", "kombu", "pymongo", "redis")
"""Packages whose versions are reported."""

_SECRET = re.compile(rb"message_key|Password=|://[^\s\"'/]*@")
"""What makes a file of settings one that not everybody may read."""
APART = timedelta(seconds=1)
FAR_APART = timedelta(seconds=60)
REDIS_TIMEOUT = 1.0
CENTURY = 3e9
"""Seconds: no clock is further off, so another program wrote that."""


def packages(_: Resources) -> Check:
    """The packages here are of versions that we, and Celery, can work with."""
    try:
        demanded = [Requirement(line) for name in (DISTRIBUTION, "celery") for line in requires(name) or ()]
    except PackageNotFoundError as error:
        return warning(
            "packages",
            Cause.PACKAGES_UNFIT,
            f"{error.name} is not installed as a package",
            f"pip install {DISTRIBUTION}",
        )
    return judge_packages(demanded)


def judge_packages(demanded: Iterable[Requirement]) -> Check:
    """Return whether these requirements are met here. Extras are left out."""
    wrong = list(_unmet(demanded))
    if wrong:
        return problem("packages", Cause.PACKAGES_UNFIT, "; ".join(wrong), f"pip install --upgrade {DISTRIBUTION}")
    return ok("packages", ", ".join(f"{name} {version(name)}" for name in DRIVERS))


def _unmet(demanded: Iterable[Requirement]) -> Iterator[str]:
    for requirement in demanded:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            held = version(requirement.name)
        except PackageNotFoundError:
            yield f"{requirement.name} is missing"
            continue
        if not requirement.specifier.contains(held, prereleases=True):
            yield f"{requirement.name} is {held}, and {requirement.specifier} is needed"


def sweeps(_: Resources) -> Check:
    """Java and PySpark are here. Only a machine that runs sweeps needs them."""
    try:
        java.check()
    except SparkUnavailable as error:
        found, advice = f"not from this machine: {error}", "nothing, unless this machine is to run sweeps"
        return warning("sweeps", Cause.SPARK_MISSING, found, advice)
    return ok("sweeps", "Java and PySpark are here")


def secrets(resources: Resources) -> Check:
    """No file of this machine that holds a password or a key may be read by everybody."""
    found = list(_files(resources.settings))
    if not found:
        return ok("secrets", "no file of this machine that is named holds a password or a key")
    shown = [path for path in found if _is_for_all(path)]
    if not shown:
        return ok("secrets", f"not for everybody to read: {join_names(found)}")
    return warning(
        "secrets",
        Cause.SECRETS_READABLE,
        f"everybody on this machine may read {join_names(shown)}",
        "make it readable for the user that runs this alone: chmod 600. Who has read it has the passwords and keys",
    )


def _files(settings: Settings) -> Iterator[str]:
    if config := os.environ.get(CONFIG):
        with suppress(OSError):
            if _SECRET.search(Path(config).read_bytes()):
                yield config
    keys = (tls.key for tls in (of_mongodb(settings.mongo_uri), of_redis(settings.broker_url)) if tls is not None)
    yield from sorted({key for key in keys if key is not None})


def _is_for_all(path: str) -> bool:
    with suppress(OSError):
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    return False


def clocks(resources: Resources) -> Check:
    """This machine's clock, the servers' and the workers' show the same time."""
    mongo, uncertain = resources.store.server.clock()
    ahead = {"MongoDB": (mongo, uncertain)}
    if resources.broker.is_there(REDIS_TIMEOUT):  # else `redis` tells
        redis = resources.broker.condition()
        ahead["Redis"] = (redis.ahead, redis.uncertain)
    return judge_clocks(ahead, resources.store.overview.workers_alive())


def judge_clocks(ahead: dict[str, tuple[timedelta, timedelta]], workers: Iterable[Worker] = ()) -> Check:
    """Return what these differences mean: {server: (ahead of this machine, by how much that may be wrong)}. Workers
    record how far their clocks are ahead of MongoDB's."""
    found = ", ".join(f"{name} {_difference(by)} this machine" for name, (by, _) in ahead.items())
    of_workers = {
        one.name: timedelta(seconds=one.clock_ahead)
        for one in workers
        if one.clock_ahead is not None and abs(one.clock_ahead) < CENTURY
    }
    odd = [f"{name} {_difference(by)} MongoDB" for name, by in of_workers.items() if abs(by) > APART]
    if odd:
        found += f"; workers: {join_names(odd)}"
    # A slow answer must not look like a wrong clock.
    apart = max([*(abs(by) - uncertain for by, uncertain in ahead.values()), *map(abs, of_workers.values())])
    if apart <= APART:
        return ok("clocks", found)
    level = Level.PROBLEM if apart > FAR_APART else Level.WARNING
    return Check("clocks", level, Cause.CLOCKS_APART, found, "keep NTP on all machines")


def _difference(ahead: timedelta) -> str:
    seconds = ahead.total_seconds()
    return f"{abs(seconds):,.3f}s {'ahead of' if seconds >= 0 else 'behind'}"
