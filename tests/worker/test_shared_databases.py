"""Applications on one database: a second name is refused at a worker's start, unless both say that they share it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recovery import InputError, Recovery, Settings
from recovery.errors import SettingsError
from recovery.records import ActorPreferences
from recovery.records.ids import CANARY
from recovery.settings import load
from recovery.store.lifecycle.actors import KeptSettings
from recovery.worker.serving_canary import add_canary
from recovery.worker.start_up import prepare
from tests.store.writing import contents
from tests.waiting import wait_until
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def application(settings: Settings, name: str | None, *actors: str, shared_with: str | None = None) -> Recovery:
    app = Recovery(settings.model_copy(update={"shared_with": shared_with}), name=name)
    for actor in actors:
        app.actor(actor)(lambda: None)
    add_canary(app)
    return app


def test_the_name_is_given_or_that_of_the_top_level_package() -> None:
    class Ours(Recovery):
        def __init__(self) -> None:
            super().__init__()

    assert Recovery(name="shop").name == "shop"
    assert Recovery().name == Ours().name == "tests"
    maker = {"__name__": "shop.orders", "Recovery": Recovery}
    exec("app = Recovery()", maker)
    assert isinstance(made := maker["app"], Recovery) and made.name == "shop"


@pytest.mark.parametrize("name", ["", "a b", "4x", "x" * 51, "é", 7])
def test_what_can_be_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"Recovery\(name=.*: the name of an application has letters"):
        Recovery(name=name)


def test_a_program_is_named_by_its_file(tmp_path: Path) -> None:
    program = tmp_path / "my-shop.py"
    program.write_text("from recovery import Recovery\nprint(Recovery().name)\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "my-shop\n"


def test_a_second_name_is_refused_and_changes_nothing(world: World) -> None:
    prepare(application(world.settings, "shop", "charge", "ship"))
    prepare(application(world.settings, "shop", "charge", "mail"))  # the same application, and newer
    before = contents(world.store, "actors")
    with pytest.raises(SettingsError) as error:
        prepare(application(world.settings, "letters", "mail", "stamp"))
    said = str(error.value)
    assert (
        f"the database {world.settings.database} belongs to another application, shop (actors charge, mail, ship)"
        in said
    )
    assert "RECOVERY_SHARED_WITH=shop here" in said and "RECOVERY_SHARED_WITH=letters there" in said
    assert "RECOVERY_DATABASE" in said and 'Recovery(name="shop")' in said and "recovery actor forget" in said
    assert contents(world.store, "actors") == before
    assert world.store.actors.applications() == {"shop": ["charge", "mail", "ship"]}, f"and not {CANARY}"


def test_two_that_name_each_other_share_it(world: World) -> None:
    prepare(application(world.settings, "shop", "charge"))
    prepare(application(world.settings, "letters", "mail", shared_with="other,shop"))
    with pytest.raises(SettingsError, match="letters"):
        prepare(application(world.settings, "shop", "charge"))
    prepare(application(world.settings, "shop", "charge", shared_with="letters"))


def test_of_two_that_start_at_once_none_goes_on_unseen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other saves its actors between this one's look and its own writing."""
    first, second = application(world.settings, "shop", "charge"), application(world.settings, "letters", "mail")
    save = KeptSettings.save

    def other_saves_first(kept: KeptSettings[ActorPreferences], told: Any, application: str | None = None) -> None:
        monkeypatch.setattr(KeptSettings, "save", save)
        prepare(second)
        kept.save(told, application)

    monkeypatch.setattr(KeptSettings, "save", other_saves_first)
    with pytest.raises(SettingsError, match="belongs to another application, letters"):
        prepare(first)


def test_actors_of_an_earlier_version_keep_nobody_out(world: World) -> None:
    world.store.actors.save([ActorPreferences(id="charge")])
    prepare(application(world.settings, "shop", "charge"))
    world.store.actors.save([ActorPreferences(id="charge")])  # a worker of that version starts again
    assert world.store.actors.applications() == {}
    assert world.store.actors.get("charge") is not None
    prepare(application(world.settings, "letters", "mail"))


def test_who_is_gone_for_good_is_forgotten(world: World) -> None:
    prepare(application(world.settings, "shop", "charge"))
    world.store.actors.forget("charge")
    prepare(application(world.settings, "letters", "mail"))


@pytest.mark.parametrize("names", ["", "shop,", "shop, mail", "4x"])
def test_names_that_can_not_be_are_refused(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_SHARED_WITH", names)
    with pytest.raises(SettingsError, match="RECOVERY_SHARED_WITH"):
        load()


@pytest.mark.cluster
def test_a_worker_of_another_application_ends_with_2(world: World, tmp_path: Path) -> None:
    prepare(application(world.settings, "shop", "charge"))
    (tmp_path / "letters.py").write_text(
        "from recovery import Recovery\napp = Recovery()\n\n@app.actor()\ndef mail():\n    pass\n"
    )
    command = [sys.executable, "-m", "recovery", "worker", "--app", "letters:app", "--concurrency", "1"]
    env = {**world.settings.environment(), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "belongs to another application, shop (actors charge), and this worker's is letters" in done.stderr
    assert "mail" not in world.store.actors.stored()
    env |= {"RECOVERY_SHARED_WITH": "shop"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL) as worker:
        try:
            wait_until(lambda: [one.application for one in world.store.workers.all()] == ["letters"], 60, "its record")
        finally:
            worker.terminate()
