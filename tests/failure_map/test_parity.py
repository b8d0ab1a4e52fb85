"""Whoever looks finds the same on the same data: scanners, `recovery check`, operations and, in tests/sweep, Spark;
every rule, and damaged records. Where one of them by design sees more or less than an operation that goes through
everything, that stands in a table with its reason; whatever else differs is a bug."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

import pytest

from recovery.repair import diagnosis
from recovery.rules import Finding, Rule, Snapshot, Surroundings, judge_process
from recovery.scan import DecisionScanner
from recovery.settings import Settings
from recovery.survey import examine, outline
from tests.failure_map import parity
from tests.failure_map.faults import FAULTS, servers_were_down
from tests.failure_map.parity import AS_A_WHOLE, SPOILT, WAYS, Case, Found
from tests.rules.test_task_rules import FOUND
from tests.sweep.shapes import HEALTHY, finished, work_timeout
from tests.world import World

pytestmark = pytest.mark.thorough

MORE, LESS = "more", "less"
NOT_THOROUGH, SCANNERS = "operation, not thorough", "scanners"


@dataclass(frozen=True)
class Apart:
    """What one way finds more of, or less, in which cases, and why that is right."""

    way: str
    how: str
    rule: Rule
    cases: frozenset[str]
    why: str


def damaged(shape: str, *fields: str) -> frozenset[str]:
    """Cases of one shape that have one of these fields spoilt, or any."""
    return frozenset(f"{shape}, {field}" for field in fields or [f"{name}.{field}" for name, field, _ in SPOILT])


TEXTS = ("processes.args", "processes.result", "decisions.outcome.value", "tasks.args")
"""They may be large, and no rule needs them, nor Task records."""
NOT_BY_THE_SCANNER = {Rule.WORKER_LOST, Rule.SERVERS_WERE_DOWN}
"""Rules on a single decision that the decision scanner does not apply to these cases: it knows of no lost worker, and
queues are polled."""
OF_A_DECISION = {rule for _, _, _, rule, _, _ in FOUND} - NOT_BY_THE_SCANNER | {Rule.ABORT_CUT_OFF}
"""Rules that need nothing but one task, and what else of an aborted process is live."""
AT_REST = "it is at rest: no record of it has a deadline, so nobody looks before it is checked"
APART = (
    Apart("check", LESS, Rule.NO_ACTORS, frozenset({"no_actors"}),
          "one finding for each actor that nobody serves, in place of those of its tasks"),
    Apart(NOT_THOROUGH, LESS, Rule.RECORD_DAMAGED,
          damaged("finished") - damaged("finished", "processes.state", "graphs.finished", "graphs.notFinished"),
          "what is finished, and seems so in outline, is looked into only with --thorough"),
    Apart(NOT_THOROUGH, LESS, Rule.RECORD_DAMAGED,
          damaged("running", *(f"decisions.{one}" for one in ("losses", "retry", "outcome.value", "children")))
          | {"actor_damaged", "running, tasks.args", "cycle, tasks.args", "work_timeout, tasks.args"},
          "of what goes on tasks that are over or wait are read in outline, and Task records not at all"),
    Apart(NOT_THOROUGH, MORE, Rule.CYCLE, frozenset({"cycle, tasks.args"}),
          "who does not see the damage concludes from the rest"),
    Apart(SCANNERS, MORE, Rule.WORKER_LOST, frozenset({"worker_lost"}),
          "only who has watched the workers knows which are gone; to others it is WORK_TIMEOUT, at its deadline"),
    Apart(SCANNERS, MORE, Rule.DECISION_NOT_APPLIED, frozenset({"end_damaged"}),
          "a page of a thousand decisions is read without outcomes: the apply tells that one can't be read"),
    Apart(SCANNERS, MORE, Rule.CYCLE, frozenset({"cycle, tasks.args"}),
          "who does not see the damage concludes from the rest"),
    Apart(SCANNERS, LESS, Rule.GRAPH_CONTRADICTED, frozenset({"shape finished_tasks_lost"}), AT_REST),
    Apart(SCANNERS, LESS, Rule.RECORD_DAMAGED, damaged("finished") - damaged("finished", "processes.recoveryTime"),
          AT_REST),
    Apart(SCANNERS, LESS, Rule.RECORD_DAMAGED,
          damaged("running", *TEXTS) | {"cycle, tasks.args", "work_timeout, tasks.args"},
          "no rule reads it, so it holds up nobody until it is needed"),
)  # fmt: skip
SERVED_BY_NOBODY = (
    Apart("check", MORE, Rule.SERVERS_WERE_DOWN,
          frozenset({f"shape {one.__name__}" for one in HEALTHY if one is not finished} | {"servers_were_down"}),
          "who asks is told at once what waits for nobody, be it past its deadline or not"),
    Apart("check", LESS, Rule.SERVERS_WERE_DOWN, frozenset({"servers_were_down"}),
          "one finding for each actor that nobody serves, in place of those of its tasks"),
)  # fmt: skip
"""The same where no queue is polled."""


def differences(cases: Iterable[Case], reference: Found, found: Found) -> set[tuple[str, str, str]]:
    """{(more or less, rule, case)}."""
    names = {case.process_id: case.name for case in cases}
    both = ((MORE, found - reference), (LESS, reference - found))
    return {(how, rule, names.get(process_id, process_id)) for how, some in both for process_id, rule, _ in some}


def designed(table: Iterable[Apart], way: str) -> set[tuple[str, str, str]]:
    return {(one.how, one.rule.value, case) for one in table if one.way == way for case in one.cases}


def look(world: World, cases: list[Case]) -> dict[str, Found]:
    """What each way finds, but Spark's."""
    return {name: way(world, cases) for name, way in WAYS.items()}


@pytest.fixture(scope="module")
def cases(lasting: Settings) -> list[Case]:
    """Made once: real processes, five seconds' work."""
    return parity.all_cases(lasting)


@pytest.fixture(scope="module")
def of_decisions(lasting: Settings, cases: list[Case]) -> Found:
    """What the decision scanner finds by itself."""
    return parity.by_scanners(parity.fill(lasting, cases), DecisionScanner.name)


@pytest.fixture(scope="module")
def found(lasting: Settings, cases: list[Case]) -> dict[str, Found]:
    return look(parity.fill(lasting, cases), cases)


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_find_the_same(found: dict[str, Found], cases: list[Case], way: str) -> None:
    assert differences(cases, found[AS_A_WHOLE], found[way]) == designed(APART, way)


def test_the_decision_scanner_alone(found: dict[str, Found], of_decisions: Found, cases: list[Case]) -> None:
    """It finds the same of the tasks that it looks at, by the rules on a single one; not what others would find."""
    due = parity.due_decisions(cases, datetime.now(UTC))
    whole = {one for one in found[AS_A_WHOLE] if one[1] in OF_A_DECISION and one[2] in due}
    seen = frozenset(one for one in of_decisions if one[1] != Rule.RECORD_DAMAGED)
    table = {one for one in designed(APART, SCANNERS) if one[1] in OF_A_DECISION}
    assert differences(cases, frozenset(whole), seen) == table
    assert {rule for _, rule, _ in seen} == OF_A_DECISION


def test_each_condition_is_found_and_nothing_on_healthy_ones(found: dict[str, Found], cases: list[Case]) -> None:
    rules: dict[str, set[str]] = {case.process_id: set() for case in cases}
    for process_id, rule, _ in frozenset[tuple[str, str, str]]().union(*found.values()):
        rules[process_id].add(rule)
    for case in cases:
        seen = rules[case.process_id]
        assert case.rule.value in seen if case.rule is not None else not seen, (case.name, seen)


def test_every_rule_has_a_case(cases: list[Case]) -> None:
    """A rule, a shape or a fault that is new has to be put beside the others here."""
    assert {case.rule for case in cases} - {None} | {Rule.SERVERS_WERE_DOWN} == set(Rule)
    assert {fault.make.__name__ for fault in FAULTS} <= {case.name for case in cases} | {"servers_were_down"}


def test_where_no_worker_is(lasting: Settings) -> None:
    """No queue is polled, which can't be in the same data."""
    down = [fault for fault in FAULTS if fault.make is servers_were_down]
    cases = [*(case for case in parity.of_shapes(lasting) if case.rule is None), *parity.of_faults(lasting, down)]
    found = look(parity.fill(lasting, cases, polled=False), cases)
    assert {rule for _, rule, _ in found[AS_A_WHOLE]} == {Rule.SERVERS_WERE_DOWN}
    for way in WAYS:
        assert differences(cases, found[AS_A_WHOLE], found[way]) == designed(SERVED_BY_NOBODY, way)


def test_a_selection_finds_the_same_of_what_it_selects(
    lasting: Settings, cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it read one by one, or as a range."""
    world = parity.fill(lasting, cases)
    whole = parity.by_operation(world, thorough=True)
    for selection, few in product(("type:orders", "state:broken"), (0, 500)):
        monkeypatch.setattr(examine, "FEW", few)
        chosen = parity.selected(world, selection)
        found = parity.by_operation(world, selection, thorough=True)
        assert chosen and found == {one for one in whole if one[0] in chosen}, (selection, few)


def test_one_that_no_rule_can_judge(lasting: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by everybody who looks at it, and hides none of the others."""
    cases = [case for case in parity.of_shapes(lasting) if case.rule is not Rule.GRAPH_CONTRADICTED]
    spoilt = next(case.process_id for case in cases if work_timeout.__name__ in case.name)

    def judge(snapshot: Snapshot, around: Surroundings) -> list[Finding]:
        if snapshot.process_id == spoilt:
            raise OverflowError("no date is so far off")
        return judge_process(snapshot, around)

    before = look(parity.fill(lasting, cases), cases)
    for module in (diagnosis, outline):
        monkeypatch.setattr(module, "judge_process", judge)
    found = look(parity.fill(lasting, cases), cases)
    for way in WAYS:
        told = (spoilt, Rule.RECORD_DAMAGED.value, spoilt)
        assert told in found[way], way
        by_itself = {one for one in found[way] if one[0] == spoilt and one[1] in OF_A_DECISION}
        assert found[way] == {one for one in before[way] if one[0] != spoilt} | {told} | by_itself, way
        assert not by_itself or way == SCANNERS


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.soak)])
def test_whatever_is_spoilt(lasting: Settings, count: int) -> None:
    """Any condition with fields of another type in any record: who looks at all of it finds the same, and so do the
    scanners where nothing is damaged."""
    seed = random.SystemRandom().randrange(10**9)
    cases = [*parity.random_cases(lasting, random.Random(seed), count)]
    found = look(parity.fill(lasting, cases), cases)
    spoilt = {process_id for process_id, rule, _ in found[AS_A_WHOLE] if rule == Rule.RECORD_DAMAGED}
    at_rest = {case.process_id for case in cases if "finished_tasks_lost" in case.name}
    for way in ("check", "operation, by pages"):
        assert differences(cases, found[AS_A_WHOLE], found[way]) == set(), f"seed {seed}"
    for way in (SCANNERS, NOT_THOROUGH):
        intact = [
            frozenset(one for one in some if one[0] not in spoilt and (way != SCANNERS or one[0] not in at_rest))
            for some in (found[AS_A_WHOLE], found[way])
        ]
        assert differences(cases, *intact) == set(), f"seed {seed}"
