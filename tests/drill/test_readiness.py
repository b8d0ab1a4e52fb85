"""On which cluster a drill begins. Workers are their records here."""

from __future__ import annotations

import threading

import pytest

from recovery.drill.canary_actor import actor_preferences
from recovery.drill.drill_report import DrillReport
from recovery.drill.drilling import DrillPlan, run, watch
from recovery.drill.readiness import muster
from recovery.engine import Resources
from recovery.errors import InputError, OtherVersion, ServerUnavailable
from recovery.installed import library_version
from recovery.records import Worker
from recovery.records.ids import CANARY
from recovery.settings import Settings


@pytest.fixture
def resources(emptied: Settings) -> Resources:
    made = Resources.connect(emptied)
    made.store.actors.save([actor_preferences()])
    return made


def beat(resources: Resources, name: str, **fields: object) -> Worker:
    known = {"queues": (CANARY, "pack"), "version": library_version(), "host": "h", **fields}
    worker = Worker(id=f"{name}:1", name=name, pid=1, pid_started=1, **known)  # type: ignore[arg-type]
    resources.store.workers.beat(worker, 60)
    return worker


def test_who_lives(resources: Resources) -> None:
    one, two = beat(resources, "one"), beat(resources, "two", host="elsewhere")
    beat(resources, "mail", queues=("mail",))
    beat(resources, "spark", queues=(), spark=True)
    crew = muster(resources, kill=False)
    assert ({w.name for w in crew.serving}, [w.name for w in crew.others]) == ({"one", "two"}, ["mail"])
    assert crew.neighbours(one.id), "mail is on its machine"
    assert not crew.neighbours(two.id)


def test_without_a_worker(resources: Resources) -> None:
    with pytest.raises(ServerUnavailable, match=r"no worker is alive in database test_\w+: start one with `recov"):
        run(resources, DrillPlan())


def test_without_one_that_serves_it(resources: Resources) -> None:
    beat(resources, "mail", queues=("mail",))
    with pytest.raises(ServerUnavailable, match=r"none of the 1 live workers .* serves recovery\.canary: .*_CANARY"):
        run(resources, DrillPlan())


@pytest.mark.parametrize(("version", "told"), [("9.0.0", "9.0.0"), (None, "too old to report its version")])
def test_workers_of_another_version(resources: Resources, version: str | None, told: str) -> None:
    beat(resources, "one")
    beat(resources, "two", version=version)
    with pytest.raises(OtherVersion, match=rf"is version {library_version()}, .* another version: two \({told}\)"):
        run(resources, DrillPlan())


def test_records_of_another_version(resources: Resources) -> None:
    beat(resources, "one")
    database = resources.store.database
    database.command("collMod", "decisions", validator={})
    try:
        with pytest.raises(OtherVersion, match=r"not those of version .*: validator of decisions; `recovery init`"):
            run(resources, DrillPlan())
    finally:
        resources.store.layout.create()


def test_while_it_is_blocked(resources: Resources) -> None:
    beat(resources, "one")
    resources.store.actors.block(CANARY)
    with pytest.raises(InputError, match=r"recovery\.canary is blocked, .*`recovery actor unblock"):
        run(resources, DrillPlan())


def test_kills_where_a_worker_does_not_allow_it(resources: Resources) -> None:
    beat(resources, "one", drill_kill=True)
    beat(resources, "two")
    with pytest.raises(InputError, match=r"--kill: .* may not be killed by a drill: two; .*RECOVERY_DRILL_KILL=true"):
        run(resources, DrillPlan(kill=True))
    (entry,) = resources.store.audit_log.newest(1)
    assert (entry.what, entry.target) == ("drill", "kill") and (entry.outcome or "").startswith("refused: ")


def test_kills_of_the_only_worker(resources: Resources) -> None:
    beat(resources, "one", drill_kill=True)
    beat(resources, "mail", queues=("mail",))
    with pytest.raises(InputError, match="one is the only worker that serves"):
        run(resources, DrillPlan(kill=True))


@pytest.mark.parametrize("processes", [0, -1, 1001])
def test_how_many(processes: int) -> None:
    with pytest.raises(InputError, match=f"--processes {processes}: must be 1 to 1,000"):
        DrillPlan(processes)


def test_nothing_was_started(resources: Resources) -> None:
    with pytest.raises(ServerUnavailable):
        run(resources, DrillPlan())
    assert resources.store.search.newest(1) == []


def test_a_probe_goes_on_once_it_has_begun(resources: Resources) -> None:
    """The first drill is refused as any is; what keeps a later one from beginning is told."""
    worker = beat(resources, "one", drill_kill=True)
    ending, said, shown = threading.Event(), list[str](), list[DrillReport]()
    with pytest.raises(InputError, match="is the only worker"):
        watch(resources, DrillPlan(kill=True), 0.0, shown.append, said.append, ending)
    resources.store.workers.remove([worker.id])

    def tell(text: str) -> None:
        """First there is no worker, then one alone, then one of another version."""
        said.append(text)
        beat(resources, "one", drill_kill=True, version=library_version() if len(said) == 1 else "9.0.0")
        if len(said) == 3:
            ending.set()

    watch(resources, DrillPlan(kill=True), 0.0, shown.append, tell, ending)
    for text, told in zip(
        said,
        ("no worker is alive", "is the only worker", "some workers have another version: one (9.0.0)"),
        strict=True,
    ):
        assert text.startswith("no drill: ") and told in text
    assert shown == []
