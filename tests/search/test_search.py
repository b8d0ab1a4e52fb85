"""What a search finds is what a filter in Python finds, whatever is asked and however it is paged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.search import parse
from recovery.settings import Settings
from recovery.store import schema
from recovery.store.views import search
from recovery.store.views.ranges import Range
from tests.world import World

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
Documents = dict[str, list[dict[str, Any]]]
Holds = Callable[[str, Documents], bool]

NAMES = st.sampled_from(["a", "ab", "b", "b*"])
AGES = st.integers(0, 4).map(lambda hours: NOW - hours * HOUR - HOUR / 2)
LIVE = ("waiting", "delayed", "queued", "working")
NUMBERS = st.integers(0, 3)
REPAIRED = st.one_of(
    st.just({}),
    st.builds(lambda rule: {"repaired": {"rule": rule, "source": "auto", "worker": "w", "at": NOW}}, NAMES),
)
EXHAUSTED = st.one_of(st.just({}), st.builds(lambda code: {"exhausted": code}, NUMBERS))
REFUSED: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, *({"attempts": attempts, "refused": {"count": 1, "attempts": 0, "pass": "k"}} for attempts in (0, 1))]
)
VERSIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}), NAMES.map(lambda name: {"version": name}), NAMES.map(lambda name: {"version": name, "pinned": True})
)


@st.composite
def databases(draw: st.DrawFn) -> Documents:
    """Records of some processes, alike enough for terms to be true."""
    found: Documents = {name: [] for name in ("processes", "graphs", "decisions", "interruptions", "operationResults")}
    for number in range(draw(st.integers(3, 10))):
        key = f"p{number}"
        state = draw(st.sampled_from(["running", "finished", "broken", "aborted"]))
        process: dict[str, Any] = {"_id": key, "type": draw(NAMES), "state": state, "args": "[[],{}]"}
        process |= {"startedAt": draw(AGES), "idleTimeout": 60.0, "startTask": "s"}
        if draw(st.booleans()):
            process["labels"] = sorted({f"of={draw(NAMES)}", f"by={draw(NAMES)}"})
        process |= draw(VERSIONS)
        if draw(st.booleans()):
            process["customId"] = f"{draw(NAMES)}{number}"
        if state == "running":
            process["recoveryTime"] = draw(AGES) + draw(st.sampled_from([0, 24])) * HOUR
        else:
            process["endedAt"] = draw(AGES)
        if state in ("broken", "aborted"):
            process["error"] = {
                "kind": draw(NAMES),
                "message": draw(NAMES),
                "code": draw(NUMBERS),
                "fingerprint": draw(NAMES),
            } | draw(EXHAUSTED)
        if draw(st.integers(0, 4)):  # now and then one has lost its Process record
            found["processes"].append(process)
        if draw(st.booleans()):
            graph = {"_id": key, "notFinished": {"t": NOW} if draw(st.booleans()) else {}, "touchedAt": draw(AGES)}
            graph |= draw(REPAIRED)
            found["graphs"].append(graph | {"recoveryTime": draw(AGES), "links": {}, "finished": [], "failed": {}})
        for task in range(draw(st.integers(0, 2))):
            decision = {"_id": f"{key}/t{task}", "actor": draw(NAMES), "timeouts": draw(NUMBERS)}
            decision["state"] = draw(st.sampled_from([*LIVE, "finished"]))
            decision |= draw(VERSIONS)
            decision |= draw(REFUSED)
            if decision["state"] != "finished":
                decision["recoveryTime"] = draw(AGES) + draw(st.sampled_from([0, 24])) * HOUR
            found["decisions"].append(decision)
        if state == "broken" and draw(st.booleans()):
            one = {"_id": f"{key}/t0", "type": process["type"], "actor": draw(NAMES), "kind": draw(NAMES)}
            one |= {"message": draw(NAMES), "fingerprint": draw(NAMES), "code": draw(NUMBERS)} | draw(EXHAUSTED)
            found["interruptions"].append(one)
        if draw(st.booleans()):
            one = {"_id": f"1/{key}", "operation": 1, "process": key, "state": "found"}
            found["operationResults"].append(one | {"rules": [draw(NAMES)], "at": NOW})
    return found


def of(documents: Documents, name: str, process: str) -> list[dict[str, Any]]:
    """The records of a process in a collection."""
    key = "process" if name == "operationResults" else "_id"
    return [one for one in documents[name] if one[key].split("/")[0] == process]


def text_is(value: str, wanted: str) -> bool:
    return value.startswith(wanted[:-1]) if wanted.endswith("*") else value == wanted


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
    "": lambda a, b: a == b,
}  # fmt: skip


def any_of(name: str, holds: Callable[[dict[str, Any]], bool]) -> Holds:
    return lambda process, documents: any(holds(one) for one in of(documents, name, process))


def texts(field: str, places: dict[str, str], wanted: str) -> tuple[str, Holds]:
    """A term on texts, and what it means: in any of {collection: field}."""

    def value(one: dict[str, Any], path: str) -> Any:
        for part in path.split("."):
            one = one.get(part, {}) if isinstance(one, dict) else {}
        return one

    def holds(process: str, documents: Documents) -> bool:
        return any(
            isinstance(value(one, path), str) and text_is(value(one, path), wanted)
            for name, path in places.items()
            for one in of(documents, name, process)
        )

    return f"{field}:{wanted}", holds


FORMS = {">": "longer", "<": "shorter"}


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, Holds]:
    wanted, number = draw(st.sampled_from(["a", "a*", "b", "c"])), draw(NUMBERS)
    sign, hours = draw(st.sampled_from(sorted(SIGNS))), draw(st.integers(1, 4))
    apart = sign or ">"
    moment = NOW - hours * HOUR
    return draw(
        st.sampled_from(
            [
                texts("type", {"processes": "type"}, wanted),
                texts("custom", {"processes": "customId"}, wanted if wanted.endswith("*") else f"{wanted}1"),
                texts("id", {"processes": "_id"}, draw(st.sampled_from(["p1", "p*", "x"]))),
                texts("state", {"processes": "state"}, draw(st.sampled_from(["running", "finished", "broken"]))),
                texts("error", {"processes": "error.kind", "interruptions": "kind"}, wanted),
                texts("fingerprint", {"processes": "error.fingerprint", "interruptions": "fingerprint"}, wanted),
                (f"pinned:{wanted}", any_of("processes", lambda one: _is_pinned(one, wanted))),
                texts("version", {"processes": "version", "decisions": "version"}, wanted),
                (f"label.of:{wanted}", any_of("processes", lambda one: _is_labelled(one, wanted))),
                (f"message:{wanted.upper()}", _messages(wanted.strip("*"))),
                (f"code:{sign}{number}", _codes(sign, number)),
                (f"actor:{wanted}", _actors(wanted)),
                (f"timeouts:{sign}{number}", any_of("decisions", lambda one: SIGNS[sign](one["timeouts"], number))),
                (f"started:{apart}{moment.isoformat()}", _times("startedAt", apart, moment)),
                (f"ended:{apart}{moment.isoformat()}", _times("endedAt", apart, moment)),
                (f"idle:{FORMS[apart[0]]}({hours}h)", _idle(apart[0], hours)),
                ("overdue", _overdue),
                ("refused", any_of("decisions", _refused)),
                (f"rule:{wanted[0]}", _rules(wanted[0])),
            ]
        )
    )


def _is_pinned(process: dict[str, Any], wanted: str) -> bool:
    return bool(process.get("pinned")) and text_is(process["version"], wanted)


def _is_labelled(process: dict[str, Any], wanted: str) -> bool:
    return any(text_is(label, f"of={wanted}") for label in process.get("labels", ()))


def _messages(part: str) -> Holds:
    own = any_of("processes", lambda one: "error" in one and part in one["error"]["message"])
    listed = any_of("interruptions", lambda one: part in one["message"])
    return lambda process, documents: own(process, documents) or listed(process, documents)


def _rules(wanted: str) -> Holds:
    found = any_of("operationResults", lambda one: wanted in one["rules"])
    repaired = any_of("graphs", lambda one: one.get("repaired", {}).get("rule") == wanted)
    return lambda process, documents: found(process, documents) or repaired(process, documents)


def _codes(sign: str, number: int) -> Holds:
    def has(error: dict[str, Any]) -> bool:
        return any(SIGNS[sign](error[name], number) for name in ("code", "exhausted") if name in error)

    own = any_of("processes", lambda one: "error" in one and has(one["error"]))
    listed = any_of("interruptions", has)
    return lambda process, documents: own(process, documents) or listed(process, documents)


def _actors(wanted: str) -> Holds:
    live = any_of("decisions", lambda one: one["state"] in LIVE and text_is(one["actor"], wanted))
    failed = any_of("interruptions", lambda one: text_is(one["actor"], wanted))
    return lambda process, documents: live(process, documents) or failed(process, documents)


def _times(field: str, sign: str, moment: datetime) -> Holds:
    return any_of("processes", lambda one: field in one and SIGNS[sign](one[field], moment))


def _idle(sign: str, hours: int) -> Holds:
    def holds(one: dict[str, Any]) -> bool:
        return bool(one["notFinished"]) and SIGNS[sign](NOW - one["touchedAt"], hours * HOUR)

    return any_of("graphs", holds)


def _refused(one: dict[str, Any]) -> bool:
    return "refused" in one and one["state"] in ("delayed", "queued")


def _overdue(process: str, documents: Documents) -> bool:
    live = [one for name in ("processes", "graphs", "decisions") for one in of(documents, name, process)]
    return any(one["recoveryTime"] <= NOW for one in live if "recoveryTime" in one)


def combined(parts: st.SearchStrategy[tuple[str, Holds]]) -> st.SearchStrategy[tuple[str, Holds]]:
    def both(pair: tuple[tuple[str, Holds], tuple[str, Holds]]) -> tuple[str, Holds]:
        (one, this), (other, that) = pair
        return f"({one} {other})", lambda p, d: this(p, d) and that(p, d)

    def either(pair: tuple[tuple[str, Holds], tuple[str, Holds]]) -> tuple[str, Holds]:
        (one, this), (other, that) = pair
        return f"({one} or {other})", lambda p, d: this(p, d) or that(p, d)

    def negated(part: tuple[str, Holds]) -> tuple[str, Holds]:
        return f"not {part[0]}", lambda p, d: not part[1](p, d)

    return st.one_of(st.tuples(parts, parts).map(both), st.tuples(parts, parts).map(either), parts.map(negated))


SEARCHES = st.recursive(terms(), combined, max_leaves=5)


@pytest.fixture
def world(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(search, "BATCH", 1)
    return World(emptied)


Asked = list[tuple[str, Holds]]
EXAMPLES = given(documents=databases(), asked=st.lists(SEARCHES, min_size=5, max_size=15), size=st.integers(1, 9))
OF_ONE_WORLD = [HealthCheck.function_scoped_fixture]


@pytest.mark.thorough
@settings(max_examples=25, deadline=None, suppress_health_check=OF_ONE_WORLD)
@EXAMPLES
def test_it_finds_what_a_filter_finds(world: World, documents: Documents, asked: Asked, size: int) -> None:
    compare(world, documents, asked, size)


@pytest.mark.soak
@settings(max_examples=1000, deadline=None, suppress_health_check=OF_ONE_WORLD)
@EXAMPLES
def test_it_finds_it_however_long_one_tries(world: World, documents: Documents, asked: Asked, size: int) -> None:
    compare(world, documents, asked, size)


def compare(world: World, documents: Documents, asked: Asked, size: int) -> None:
    for name, records in documents.items():
        collection = world.store.database[name]
        collection.delete_many({})
        if records:
            collection.insert_many(records, bypass_document_validation=True)
    there = sorted(one["_id"] for one in documents["processes"])
    for text, holds in asked:
        query = parse(text, NOW)
        wanted = [one for one in there if holds(one, documents)]
        paged, after = list[str](), None
        while page := world.store.search.page(query, after, size):
            assert len(page) <= size
            paged += page
            after = page[-1]
        assert paged == wanted, text
        parts = [Range(None, "p3"), Range("p3", "p6"), Range("p6", None)]
        ranged = [one for part in parts for one in world.store.search.page(query, None, 100, part)]
        assert ranged == wanted, f"{text}, by ranges"


@pytest.mark.parametrize(
    "text", ["(state:{} or type:c)", "(type:a* (state:{} or type:c))", "not (not state:{} type:a)"]
)
def test_a_plan_for_one_state_is_not_taken_for_another(world: World, text: str) -> None:
    """MongoDB takes the cached plan of the one for the other, and with it an index that lacks what is asked for."""
    processes = world.store.database["processes"]
    states = ("running", "broken", "aborted", "finished")
    for state in states:
        one = {"_id": f"p-{state}", "type": "a", "state": state, "args": "[]"}
        processes.insert_one(one | ({"recoveryTime": NOW} if state == "running" else {}))
    for first in states:
        for second in states:
            for state in (first, first, first, second):
                found = world.store.search.page(parse(text.format(state), NOW), None, 9)
                assert found == [f"p-{state}"], (first, state)


def test_every_field_is_tried() -> None:
    from recovery.search import FIELDS

    tried = {
        "type",
        "custom",
        "id",
        "label",
        "version",
        "pinned",
        "state",
        "error",
        "message",
        "fingerprint",
        "code",
        "actor",
        "timeouts",
        "started",
        "ended",
    }
    assert FIELDS.keys() - tried - {"idle", "overdue", "refused", "rule", "key"} == set()


@pytest.mark.parametrize("batch", [1, 2, 3, 200])
def test_what_comes_from_two_collections_is_in_order_and_whole(
    world: World, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is broken for an error of its own, and for that of a task, in turns of three."""
    monkeypatch.setattr(search, "BATCH", batch)
    database = world.store.database
    for number in range(20):
        key, own = f"p{number:02}", number // 3 % 2 == 0
        error = {"error": {"kind": "a" if own else "b", "message": ""}}
        database["processes"].insert_one({"_id": key, "type": "x", "state": "broken", "args": "[]", **error})
        if not own:
            one = {"_id": f"{key}/t", "type": "x", "actor": "pay", "kind": "a", "message": "", "fingerprint": "f"}
            database["interruptions"].insert_one(one)
    # One whose Process record is lost.
    database["interruptions"].update_one({"_id": "p03/t"}, {"$set": {"actor": "gone"}})
    database["processes"].delete_one({"_id": "p03"})
    wanted = [f"p{number:02}" for number in range(20) if number != 3]
    for text in ("error:a", "error:a type:x", "error:a or error:b", "not overdue error:a"):
        query = parse(text, NOW)
        for size in (1, 2, 3, 7, 50):
            paged, after = list[str](), None
            while page := world.store.search.page(query, after, size):
                paged += page
                after = page[-1]
            assert paged == wanted, (text, size)


PAGES = {
    "type:a": ("type", 10),
    "type:none": ("type", 0),
    "state:running": ("running", 10),
    "type:a state:running": ("running", 30),
    "state:broken": ("unsuccessful", 10),
    "label.of:a": ("labels", 10),
}
"""{search: (index, keys that a page of 10 may take)}; those that run are spread among three types."""


def test_a_page_of_what_has_an_index_reads_what_it_shows(world: World) -> None:
    processes = world.store.database["processes"]
    found = []
    for number in range(3000):
        one: dict[str, Any] = {
            "_id": f"p{number:05}",
            "type": "abc"[number % 3],
            "args": "[[],{}]",
            "state": "finished",
        }
        if number % 50 in (0, 1):
            one |= {"state": "broken"} if number % 50 else {"state": "running", "recoveryTime": NOW}
        found.append(one | {"labels": [f"of={'ab'[number % 2]}"]})
    processes.insert_many(found)
    for text, (index, most) in PAGES.items():
        plan = search.plan_of(parse(text, NOW).tree)
        assert plan.exact, text
        (source,) = plan.candidates
        asked = processes.find({"$and": [{"_id": {"$gte": ""}}, source.filter]}, {"_id": True}).sort("_id", 1).limit(10)
        told = asked.explain()
        assert f"'indexName': '{index}'" in str(told["queryPlanner"]["winningPlan"]), text
        assert told["executionStats"]["totalKeysExamined"] <= most + 1, text
    newest = processes.find({"_id": {"$gte": ""}, "state": "running"}, {"_id": True}).sort("_id", -1).limit(20)
    assert newest.explain()["executionStats"]["totalKeysExamined"] <= 21


def test_what_goes_through_many_takes_a_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SLOW_FROM", 5)
    records = [{"_id": f"p{n}", "type": "a" if n < 8 else "b", "state": "finished", "args": "[]"} for n in range(11)]
    world.store.database["processes"].insert_many(records)
    costs = {
        "type:a": (False, True),
        "type:a idle:longer(1h)": (True, True),
        "type:a started:within(1h)": (True, True),
        "type:b idle:longer(1h)": (False, True),
        "type:b (state:finished or idle:longer(1h))": (False, True),
        "state:running idle:longer(1h)": (False, True),
        "idle:longer(1h)": (True, False),
        "state:finished": (True, False),
        "error:a": (False, True),
        "error:a idle:longer(1h)": (False, True),
        "id:p1": (False, True),
    }
    found = {text: world.store.search.cost(parse(text, NOW)) for text in costs}
    assert {text: (cost.slow, cost.indexed) for text, cost in found.items()} == costs


def test_what_is_wrong_is_found_without_going_through_all_processes(world: World) -> None:
    for text in ("label.of:a", "error:a", "code:>3", "fingerprint:a*", "rule:a", "type:x error:a", "error:a or rule:b"):
        candidates = search.plan_of(parse(text, NOW).tree).candidates
        assert all(one.few for one in candidates), text
        for one in candidates:
            found = world.store.database[one.collection].find({**one.filter, "$and": [{one.key: {"$gte": ""}}]})
            if one.collection == schema.PROCESSES:
                assert "COLLSCAN" not in str(found.sort("_id", 1).explain()["queryPlanner"]["winningPlan"])
