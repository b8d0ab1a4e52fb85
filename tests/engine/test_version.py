"""The version of an application: given, its distribution's, or a hash of what its actors are called with."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery import Recovery
from recovery.engine import application as application_version
from recovery.engine.application import default_version
from recovery.errors import InputError
from recovery.settings import load
from recovery.worker.serving_canary import add_canary


def of(*functions: Any) -> str:
    app = Recovery(load())
    for function in functions:
        app.actor()(function)
    return app.version


def one(a: int, *, b: str = "") -> None: ...


def two(a: int) -> None: ...


def test_a_version_is_as_given() -> None:
    assert Recovery(load(), version="1.4.0+g1a2b3c").version == "1.4.0+g1a2b3c"


@pytest.mark.parametrize("version", ["", " 1", "1 2", "1\n", "v" * 51, "-1", 1.4, b"1"])
def test_what_can_be_no_version_is_refused(version: Any) -> None:
    with pytest.raises(
        InputError, match=r"the version of an application has letters, digits, '_', '\.', '\+', '!' and '-'"
    ):
        Recovery(load(), version=version)


def test_by_default_it_is_that_of_the_distribution_that_the_package_belongs_to() -> None:
    assert default_version("pymongo.collection", {}) == importlib.metadata.version("pymongo")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The metadata of a distribution that pip has installed, which names the package `kiosk`."""
    metadata = tmp_path / "kiosk_dist-1.2.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kiosk-dist\nVersion: 1.2.3\n")
    (metadata / "top_level.txt").write_text("kiosk\n")
    monkeypatch.syspath_prepend(tmp_path)
    application_version._distribution_version.cache_clear()
    yield metadata
    application_version._distribution_version.cache_clear()


@pytest.mark.parametrize("origin", [None, "{", "[]", '{"dir_info": {}}', '{"url": "https://pypi.org"}'])
def test_an_installed_distribution_gives_its_version(installed: Path, origin: str | None) -> None:
    if origin is not None:
        (installed / "direct_url.json").write_text(origin)
    assert default_version("kiosk.app", {}) == "1.2.3"


def test_one_that_is_installed_in_editable_mode_does_not(installed: Path) -> None:
    """As setuptools installs it: its metadata names its packages, and there is more of it beside the sources."""
    (installed / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": "file:///kiosk"}))
    sources = installed.parent / "sources" / "kiosk_dist.egg-info"
    sources.mkdir(parents=True)
    (sources / "PKG-INFO").write_text((installed / "METADATA").read_text())
    (sources / "top_level.txt").write_text("kiosk\n")
    sys.path.insert(0, str(sources.parent))
    try:
        assert default_version("kiosk.app", {}).startswith("actors-")
    finally:
        sys.path.remove(str(sources.parent))


def test_code_that_nobody_installed_is_told_apart_by_the_parameters_of_its_actors() -> None:
    first = of(one, two)
    assert first.startswith("actors-")
    assert first == of(two, one)

    def two_more(a: int, more: int) -> None: ...

    def two_optional(a: int = 1) -> None: ...

    def two_by_name(*, a: int) -> None: ...

    others = {first, of(one)}
    for changed in (two_more, two_optional, two_by_name):
        changed.__name__ = "two"
        others.add(of(one, changed))
    assert len(others) == 5


def test_an_actor_that_is_registered_later_counts() -> None:
    app = Recovery(load())
    app.actor()(one)
    before = app.version
    app.actor()(two)
    assert app.version != before
    assert app.version == of(one, two)


def test_the_canary_of_workers_is_not_part_of_it() -> None:
    app = Recovery(load(canary=True))
    app.actor()(one)
    before = app.version
    add_canary(app)
    del app.__dict__["version"]
    assert app.version == before


def test_it_is_the_same_in_each_process() -> None:
    code = (
        "from recovery import Recovery\n"
        "app = Recovery()\n"
        "@app.actor()\n"
        "def add(a, b=object(), *c, d={1, 2, 'x', 'y'}): ...\n"
        "print(app.version)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
