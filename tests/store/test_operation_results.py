"""What operations did to single processes: written together where it is alike, and each with what became of it."""

from __future__ import annotations

import itertools

import pytest

from recovery.errors import StoreError
from recovery.records import OperationResult, ResultState
from recovery.records.operation_parts import result_id
from recovery.store import Store, schema
from tests.store.writing import contents

ENDS = [
    (state, after, error, repaired)
    for state, after, error, repaired in itertools.product(
        (ResultState.DONE, ResultState.NOTHING, ResultState.ERROR),
        ("running/0/0", "finished/0/0"),
        (None, "left: $$NOW"),
        ({}, {"MESSAGE_LOST": 8}),
    )
]


def found(store: Store, count: int) -> list[OperationResult]:
    results = [
        OperationResult(id=result_id(1, f"p{place:03}"), operation=1, process=f"p{place:03}", type="order")
        for place in range(count)
    ]
    store.operation_results.insert(results)
    return results


def test_each_ends_as_it_ended(store: Store) -> None:
    results = found(store, 3 * len(ENDS) + 1)
    ended = [
        one.evolve(state=state, after=after, error=error, repaired=repaired)
        for one, (state, after, error, repaired) in zip(results, itertools.cycle(ENDS), strict=False)
    ]
    store.operation_results.end(ended[:-1])
    after = contents(store, schema.OPERATION_RESULTS)
    for one in ended[:-1]:
        stored = after[one.id]
        told = (stored["state"], stored.get("after"), stored.get("error"), stored.get("repaired", {}))
        assert told == (one.state.value, one.after, one.error, one.repaired) and "endedAt" in stored
    assert after[ended[-1].id]["state"] == ResultState.FOUND.value
    store.operation_results.end([one.evolve(state=ResultState.CHANGED, error="later") for one in results[:-1]])
    assert contents(store, schema.OPERATION_RESULTS) == after, "it ends once"


def test_one_that_can_not_be_written_holds_up_none_that_ended_alike(store: Store) -> None:
    results = found(store, 9)
    refused = results[4].id
    collection = store.database[schema.OPERATION_RESULTS]
    before = {"validator": {}, "validationLevel": "moderate"} | collection.options()
    store.database.command("collMod", collection.name, validator={"_id": {"$ne": refused}}, validationLevel="strict")
    try:
        with pytest.raises(StoreError):
            store.operation_results.end([one.evolve(state=ResultState.DONE) for one in results])
    finally:
        store.database.command("collMod", collection.name, **before)
    states = {key: one["state"] for key, one in contents(store, schema.OPERATION_RESULTS).items()}
    assert states == {one.id: "found" if one.id == refused else "done" for one in results}
