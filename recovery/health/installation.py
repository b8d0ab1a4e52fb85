"""Checks of what is installed here: packages, Java, and the collections in MongoDB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from recovery.engine import Resources
from recovery.errors import SparkUnavailable
from recovery.health.model import Cause, Check, join_names, ok, problem, warning
from recovery.installed import DISTRIBUTION
from recovery.sweep import java

DRIVERS = ("celery", "kombu", "pymongo", "redis")
"""Of these the versions are told."""


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
    """Whether these requirements are met here. Extras are passed over."""
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


def collections(resources: Resources) -> Check:
    """Collections, validators and indexes are there and as they should be."""
    layout = resources.store.layout
    missing, different = layout.missing(), layout.different()
    found = [f"missing or out of date: {join_names(missing)}"] if missing else []
    found += [f"not as it should be: {join_names(different)}"] if different else []
    if different:
        # Nothing of ours drops an index: making it again may take minutes, in which scans cost what exists.
        advice = f"drop it ({'; '.join(different.values())}), then `recovery init`, which makes it again"
        return problem("collections", Cause.COLLECTIONS_DIFFERENT, "; ".join(found), advice)
    if missing:
        advice = "`recovery init` brings them back"
        return problem("collections", Cause.COLLECTIONS_MISSING, "; ".join(found), advice)
    return ok("collections", "all there, with validators and indexes")
