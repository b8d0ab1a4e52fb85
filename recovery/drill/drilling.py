"""A whole drill: canaries run through the live cluster. If kills are allowed, one canary kills a pool process and one a
worker.

However the drill ends, it removes its canaries. If the drill itself is killed, its canaries end by themselves. The
drill does not measure delays that it causes itself: at most as many canaries wait for a slot at once as there are
workers.

`watch` runs drills one after the other and counts them in this process's metrics, for a dashboard. If a server or a
worker is unavailable, the drill counts as a failed start, and the next drill tries again. A drill is skipped without
being counted if two versions are deployed, or, after the first drill, if it may not begin because the canary is blocked
or a killed worker has not returned.

Metrics: recovery_drill_seconds, recovery_drill_probes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass

from recovery import metrics
from recovery.drill import readiness
from recovery.drill.canary_actor import DELAY, HOLD, CanaryKind, Victim
from recovery.drill.drill_report import DrillReport, Taker, measured
from recovery.drill.flock import Flock
from recovery.drill.sightings import Canary, Probe, ProbeOutcome, PromisedTime, Step, net, patience, promised
from recovery.engine import Resources
from recovery.engine.operators.auditing import audited
from recovery.errors import BrokerError, InputError, OtherVersion, ServerUnavailable
from recovery.records.ids import START_TASK, new_process_id

LOOK_EVERY = 0.05
"""Seconds between two looks at canaries. Everything to be seen stays in a record for at least a second."""
MAX_PROCESSES = 1000
CALL_TIMEOUT = 10.0
"""Maximum seconds for which workers that ran no canary are called."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """The options of a drill. Raises InputError."""

    processes: int = 10
    kill: bool = False
    why: str = ""
    """Why something is killed, for the audit log."""

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise InputError(f"--processes {self.processes}: must be 1 to {MAX_PROCESSES:,}")


def run(resources: Resources, plan: DrillPlan, tell: Tell = lambda _: None) -> DrillReport:
    """Run a drill, and return its report.

    Removes all canaries that it can, even if it raises. Raises what `readiness.muster` raises, StartRefused and
    StoreError. `tell` is called with progress messages.
    """
    drill_id = new_process_id()
    with audited(resources, "drill", "kill", plan.why, drill=drill_id) if plan.kill else nullcontext():
        crew = readiness.muster(resources, kill=plan.kill)
        drill = _Drill(resources, plan, crew, drill_id, tell)
        try:
            drill.work()
        finally:
            drill.left = drill.flock.remove()
    return drill.report()


class _Drill:
    def __init__(self, resources: Resources, plan: DrillPlan, crew: readiness.Crew, drill_id: str, tell: Tell) -> None:
        self.id = drill_id
        self._resources, self._plan, self._crew, self._tell = resources, plan, crew, tell
        self._settings = resources.settings
        self.flock = Flock(resources, self.id)
        self.left = 0
        self._began, self._pause = time.monotonic(), threading.Event()
        self._neighbours = False
        self._killed: set[str] = set()
        self._notes: list[str] = []

    def work(self) -> None:
        """Run all measurements."""
        if removed := self.flock.remove_old():
            self._notes.append(f"removed {removed} canaries of interrupted drills")
        self._tell(f"{self._plan.processes} canaries through {len(self._crew.serving)} workers")
        self._rounds()
        self._call()
        if self._plan.kill:
            for victim in Victim:
                self._kill(victim)

    def _rounds(self) -> None:
        """Start canaries, a few at a time, until all have ended, or until nothing has changed for as long as the
        slowest step may take."""
        wanted = self._plan.processes
        timeout, last_change = self._standstill_timeout(), time.monotonic()
        while True:
            if self.flock.look():
                last_change = time.monotonic()
            running = [canary for canary in self.flock.canaries if not canary.ended]
            started = len(self.flock.canaries)
            if not running and started >= wanted:
                return
            if time.monotonic() - last_change > timeout:
                self._note_unfinished(len(running), wanted - started)
                return
            self._start_some(wanted - started, sum(canary.waits for canary in running))
            self._pause.wait(LOOK_EVERY)

    def _start_some(self, wanted: int, waiting: int) -> None:
        for _ in range(min(wanted, len(self._crew.serving) - waiting)):
            try:
                self.flock.start(CanaryKind.ROUND)
            except ServerUnavailable:  # a lasting standstill is reported later
                return

    def _call(self) -> None:
        """Start canaries until each worker has run one, or CALL_TIMEOUT has passed."""
        deadline = time.monotonic() + CALL_TIMEOUT
        while time.monotonic() < deadline:
            try:
                if not self._missing():
                    return
                for _ in self._crew.serving:
                    self.flock.start(CanaryKind.CALL)
            except ServerUnavailable:
                self._pause.wait(LOOK_EVERY)
            self._await(self._calls(), deadline)

    def _missing(self) -> set[str]:
        """Return the ids of live workers that have not run a canary."""
        alive = {worker.id for worker in self._resources.store.overview.workers_alive()}
        return {worker.id for worker in self._crew.serving if worker.id in alive} - self.flock.took().keys()

    def _kill(self, victim: Victim) -> None:
        """Start a canary that kills, and wait until the next attempt has finished it."""
        victim_name = "its pool process" if victim is Victim.SLOT else "its worker"
        step = Step.KILLED_WORKER if victim is Victim.WORKER else Step.KILLED_SLOT
        try:
            crew = readiness.muster(self._resources, kill=True)  # time has passed since the first check
            canary = self.flock.start(CanaryKind.KILL, victim, net=net(self._settings))
        except (InputError, OtherVersion, ServerUnavailable) as error:
            self._notes.append(f"{step.value} was not tried: {error}")
            return
        self._tell(f"a canary kills {victim_name}")
        slowest = promised(step, self._settings)
        deadline = time.monotonic() + patience(promised(Step.START, self._settings)) + HOLD + patience(slowest)
        self._await([canary], deadline)
        if why := self.flock.declined(canary):
            self._notes.append(f"{step.value} was not tried: {why}")
        elif victim is Victim.WORKER and (worker := canary.first_worker):
            self._killed.add(worker)
            self._neighbours = crew.neighbours(worker)

    def _await(self, canaries: Collection[Canary], deadline: float) -> None:
        """Wait until all of these canaries have ended."""
        while not all(canary.ended for canary in canaries) and time.monotonic() < deadline:
            self._pause.wait(LOOK_EVERY)
            self.flock.look()

    def _calls(self) -> list[Canary]:
        return [canary for canary in self.flock.canaries if canary.kind is CanaryKind.CALL]

    def _standstill_timeout(self) -> float:
        """Return the seconds within which the slowest step must happen."""
        return max(
            patience(promised(Step.START, self._settings)),
            DELAY + patience(promised(Step.DELAY, self._settings)),
            self.flock.worker_timeout + patience(promised(Step.LOST_CLAIM, self._settings)),
        )

    def _note_unfinished(self, running: int, unstarted: int) -> None:
        if running:
            self._notes.append(f"{running} canaries had not ended when no canary made progress any more")
        if unstarted > 0:
            self._notes.append(f"{unstarted} canaries were not started, because no canary made progress")

    def report(self) -> DrillReport:
        """Return the drill's report."""
        took = self.flock.took()
        # Canaries that declined, and calls that no worker has taken yet, are not reported.
        reported = [
            canary
            for canary in self.flock.canaries
            if self.flock.declined(canary) is None and not (canary.kind is CanaryKind.CALL and canary.waits)
        ]
        probes = [probe for canary in reported for probe in canary.probes(self.flock.worker_timeout)]
        unstarted = self._plan.processes - sum(canary.kind is CanaryKind.ROUND for canary in self.flock.canaries)
        probes += [Probe(Step.START, "", START_TASK, None)] * unstarted
        promises: dict[Step, PromisedTime] = {
            step: promised(step, self._settings, neighbours=self._neighbours) for step in Step
        }
        workers = [
            *(
                Taker(worker.name, True, took.get(worker.id, 0), worker.id in self._killed)
                for worker in self._crew.serving
            ),
            *(Taker(worker.name, False, 0) for worker in self._crew.others),
        ]
        broken = [f"canary {canary.id} broke: {canary.error}" for canary in self.flock.canaries if canary.error]
        return DrillReport(
            drill=self.id,
            processes=len(self.flock.canaries),
            seconds=time.monotonic() - self._began,
            steps=measured(probes, promises),
            workers=workers,
            canaries=self.flock.canaries,
            left=self.left,
            notes=[*self._notes, *broken],
        )


MIN_EVERY, MAX_EVERY = 10.0, 180.0
"""Allowed seconds between two drills. A drill takes about five. The alert on failing drills needs one in each of two
periods of three minutes."""


def watch(
    resources: Resources,
    plan: DrillPlan,
    every: float,
    show: Callable[[DrillReport], None],
    tell: Tell,
    ending: threading.Event | None = None,
) -> None:
    """Run a drill every `every` seconds until `ending` is set, or a permanent error is raised.

    `show` is called with each report, `tell` with the reason if a drill can't begin. Raises InputError only for the
    first drill.
    """
    ending, first = ending or threading.Event(), True
    while not ending.is_set():
        began_at = time.monotonic()
        try:
            run_once(resources, plan, show, tell)
        except InputError as error:
            if first:
                raise
            tell(f"no drill: {error}")
        first = False
        ending.wait(max(0.0, every - (time.monotonic() - began_at)))


def run_once(
    resources: Resources, plan: DrillPlan, show: Callable[[DrillReport], None], tell: Tell
) -> DrillReport | None:
    """Run a drill and count it. Return None if it could not run."""
    try:
        report = run(resources, plan)
    except OtherVersion as error:
        tell(f"no drill: {error}")
        return None
    except (ServerUnavailable, BrokerError) as error:
        metrics.DRILL_PROBES.labels(Step.START.value, ProbeOutcome.FAILED.value).inc()
        tell(f"no drill: {error}")
        return None
    report.count()
    show(report)
    return report
