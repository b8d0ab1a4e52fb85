"""What the code says and what an operator set stand beside each other, and neither's write touches the other's."""

from __future__ import annotations

from recovery.limits import LONGEST, MAX_COUNT
from recovery.records import ActorPreferences, ProcessTypePreferences, Stored
from recovery.store import Store

ADD, SUM = ActorPreferences(id="add", worker_timeout=1, max_work_timeouts=2), ActorPreferences(id="sum")


def test_the_codes_word_replaces_the_codes_word(store: Store) -> None:
    store.actors.save([ADD, SUM])
    store.actors.save([ActorPreferences(id="add", accept_first=False)])
    assert store.actors.all() == {"add": ActorPreferences(id="add", accept_first=False), "sum": SUM}
    store.actors.save([])


def test_what_was_set_survives_a_deployment(store: Store) -> None:
    store.actors.save([ADD, SUM])
    assert store.actors.override("add", {"worker_timeout": 9.0, "auto_heartbeat": True})
    assert store.actors.block("add")
    store.actors.save([ADD.evolve(max_work_timeouts=5), SUM])
    code, overrides = ADD.evolve(max_work_timeouts=5), {"worker_timeout": 9.0, "auto_heartbeat": True}
    assert store.actors.stored() == {"add": Stored(code, overrides, blocked=True), "sum": Stored(SUM)}
    assert store.actors.get("add") == store.actors.stored()["add"]
    assert store.actors.all()["add"] == code.evolve(**overrides)


def test_unset_leaves_the_others(store: Store) -> None:
    store.actors.save([ADD])
    store.actors.override("add", {"worker_timeout": 9.0, "accept_first": False})
    store.actors.override("add", {"worker_timeout": 8.0})
    assert store.actors.unset("add", ["accept_first", "auto_heartbeat"])
    assert store.actors.stored() == {"add": Stored(ADD, {"worker_timeout": 8.0})}


def test_of_what_nobody_told_nothing_is_written(store: Store) -> None:
    assert not store.actors.override("add", {"worker_timeout": 9.0})
    assert not store.actors.unset("add", ["worker_timeout"])
    assert not store.actors.block("add") and not store.actors.unblock("add")
    assert store.actors.get("add") is None and store.actors.stored() == {}


def test_what_another_program_wrote_is_passed_over(store: Store) -> None:
    store.actors.save([ADD])
    store.database["actors"].update_one({"_id": "add"}, {"$set": {"overrides.colour": 3, "size": 7}})
    wrong = {"overrides.workerTimeout": "9 s", "overrides.taskTimeout": -1, "overrides.maxWorkTimeouts": 2.5}
    store.database["actors"].update_one({"_id": "add"}, {"$set": wrong})
    assert store.actors.stored() == {"add": Stored(ADD)}


def test_a_block_is_made_once(store: Store) -> None:
    store.actors.save([ADD, SUM])
    assert store.actors.block("add") and not store.actors.block("add")
    assert store.actors.blocked() == ["add"]
    assert store.actors.unblock("add") and not store.actors.unblock("add")
    assert store.actors.blocked() == [] and store.actors.stored()["add"] == Stored(ADD)


def test_process_types_alike(store: Store) -> None:
    order = ProcessTypePreferences(id="order", process_timeout=5)
    store.process_types.save([order])
    store.process_types.override("order", {"break_after_process_timeout": True})
    store.process_types.save([order.evolve(process_timeout=6)])
    expected = order.evolve(process_timeout=6, break_after_process_timeout=True)
    assert store.process_types.all() == {"order": expected}


def test_what_an_older_version_took_is_brought_within_the_limits(store: Store) -> None:
    """Deadlines are worked out from it for all records at once: a date that can't be is an error for all of them."""
    store.actors.save([ADD.evolve(worker_timeout=1e15, task_timeout=1e30, max_work_timeouts=10**15, requeue_rate=1e12)])
    store.process_types.save([ProcessTypePreferences(id="order", process_timeout=1e15)])
    limited = ADD.evolve(
        worker_timeout=float(LONGEST),
        task_timeout=float(LONGEST),
        max_work_timeouts=MAX_COUNT,
        requeue_rate=float(MAX_COUNT),
    )
    assert store.actors.all() == {"add": limited}
    assert store.preferences.task_timeouts() == {"add": LONGEST}
    assert store.preferences.process_timeouts() == {"order": LONGEST}
    store.actors.override("add", {"worker_timeout": 1e15, "max_work_timeouts": 10**15, "task_timeout": 5.0})
    assert store.actors.all() == {"add": limited.evolve(task_timeout=5.0)}, "what can't be set is passed over"
