"""Starts: one by one against a bare insert with majority, and many at once against one by one, until all are
registered and their messages pushed."""

from __future__ import annotations

from typing import Any

from recovery import Recovery, Settings
from recovery.records.ids import new_process_id
from recovery.store import layout
from recovery.store.concerns import committed
from tests.bench import apps
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios
from tests.bench.workers import seconds
from tests.documents import database_of

ONE_BY_ONE, MANY, REPEATS = 1000, 10_000, 5


def run(settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    store = app.resources.store
    layout.create(database_of(store))
    app.start("nothing")
    bare: Any = committed(database_of(store)["bare"])
    document = database_of(store)["processes"].find_one({}) or {}

    def insert() -> None:
        for _ in range(ONE_BY_ONE):
            bare.insert_one({**document, "_id": new_process_id()})

    def start() -> None:
        for _ in range(ONE_BY_ONE):
            app.start("nothing")

    def start_all() -> None:
        start()
        assert app.registrar.wait(60)

    def start_many() -> None:
        assert not any(one.error for one in app.start_many("nothing", [[]] * MANY))
        assert app.registrar.wait(60)

    works = {
        "bare insert": lambda: ONE_BY_ONE / seconds(insert),
        "start": lambda: ONE_BY_ONE / seconds(start),
        "start, all registered": lambda: ONE_BY_ONE / seconds(start_all),
        "start_many": lambda: MANY / seconds(start_many),
    }
    found = in_turn(works, REPEATS)
    detail = medians(found, "a second")
    return [
        ratio_row("start / bare insert with majority", ratios(found, "start", "bare insert"), ">= 0.5", detail),
        ratio_row(
            "start_many of 10,000 / start", ratios(found, "start_many", "start, all registered"), ">= 10", detail
        ),
    ]
