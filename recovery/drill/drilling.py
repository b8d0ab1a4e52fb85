"""A whole drill: canaries through the cluster as it is, then, if it may, one that kills a pool process and one that
kills a worker. Whatever ends it, its canaries are removed before it ends; where it is killed itself, they end by
themselves.

It does not measure what it brings about itself: as many canaries wait for a slot at once as there are workers.

`watch` runs drills one after the other, counted in this process's metrics: the promise itself on a dashboard.

A server or a worker that is not there is what a probe is for: it counts as a start that failed, and the next drill
tries again. Two versions at once are a deployment: that drill is left out and counts as nothing. So is, after the
first, one that may not begin, since the canary is blocked or a worker that was killed is not back yet.

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
"""Seconds. What is looked for stands in a record for a second at least."""
MAX_PROCESSES = 1000
CALL_TIMEOUT = 10.0
"""Seconds in which workers that took no canary are called."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What a drill is to do. Raises InputError."""

    processes: int = 10
    kill: bool = False
    why: str = ""
    """Why something is killed: kept in the audit log."""

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise InputError(f"--processes {self.processes}: must be 1 to {MAX_PROCESSES:,}")


def run(resources: Resources, plan: DrillPlan, tell: Tell = lambda _: None) -> DrillReport:
    """Run a drill; what came of it. `tell` is told what is being done. Raises what `readiness.muster` does,
    StartRefused and StoreError; whatever it raises, it leaves no canary that it could remove."""
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
        """All that is to be measured."""
        if old := self.flock.remove_old():
            self._notes.append(f"removed {old} canaries of drills that were cut off")
        self._tell(f"{self._plan.processes} canaries through {len(self._crew.serving)} workers")
        self._rounds()
        self._call()
        if self._plan.kill:
            for victim in Victim:
                self._kill(victim)

    def _rounds(self) -> None:
        """Start canaries, a few at a time, until all have ended, or nothing has changed for as long as the slowest step
        may take."""
        wanted = self._plan.processes
        timeout, seen = self._stands_still_for(), time.monotonic()
        while True:
            if self.flock.look():
                seen = time.monotonic()
            running = [one for one in self.flock.canaries if not one.ended]
            started = len(self.flock.canaries)
            if not running and started >= wanted:
                return
            if time.monotonic() - seen > timeout:
                self._note_unfinished(len(running), wanted - started)
                return
            self._start_some(wanted - started, sum(one.waits for one in running))
            self._pause.wait(LOOK_EVERY)

    def _start_some(self, wanted: int, waiting: int) -> None:
        for _ in range(min(wanted, len(self._crew.serving) - waiting)):
            try:
                self.flock.start(CanaryKind.ROUND)
            except ServerUnavailable:  # that nothing goes on is told when it has been so for long
                return

    def _call(self) -> None:
        """Start canaries until each worker had one, or was called for long enough."""
        until = time.monotonic() + CALL_TIMEOUT
        while time.monotonic() < until:
            try:
                if not self._missing():
                    return
                for _ in self._crew.serving:
                    self.flock.start(CanaryKind.CALL)
            except ServerUnavailable:
                self._pause.wait(LOOK_EVERY)
            self._await(self._calls(), until)

    def _missing(self) -> set[str]:
        """Those that took none, and are still there."""
        alive = {one.id for one in self._resources.store.overview.workers_alive()}
        return {one.id for one in self._crew.serving if one.id in alive} - self.flock.took().keys()

    def _kill(self, victim: Victim) -> None:
        """One canary that kills, and waits for the attempt that comes after."""
        what = "its pool process" if victim is Victim.SLOT else "its worker"
        step = Step.KILLED_WORKER if victim is Victim.WORKER else Step.KILLED_SLOT
        try:
            crew = readiness.muster(self._resources, kill=True)  # it is a while since the first look
            canary = self.flock.start(CanaryKind.KILL, victim, net=net(self._settings))
        except (InputError, OtherVersion, ServerUnavailable) as error:
            self._notes.append(f"{step.value} was not tried: {error}")
            return
        self._tell(f"a canary kills {what}")
        slowest = promised(step, self._settings)
        until = time.monotonic() + patience(promised(Step.START, self._settings)) + HOLD + patience(slowest)
        self._await([canary], until)
        if why := self.flock.declined(canary):
            self._notes.append(f"{step.value} was not tried: {why}")
        elif victim is Victim.WORKER and (worker := canary.first_worker):
            self._killed.add(worker)
            self._neighbours = crew.neighbours(worker)

    def _await(self, canaries: Collection[Canary], until: float) -> None:
        """Wait until all of these have ended."""
        while not all(one.ended for one in canaries) and time.monotonic() < until:
            self._pause.wait(LOOK_EVERY)
            self.flock.look()

    def _calls(self) -> list[Canary]:
        return [one for one in self.flock.canaries if one.kind is CanaryKind.CALL]

    def _stands_still_for(self) -> float:
        """Seconds in which something happens, if anything ever does."""
        return max(
            patience(promised(Step.START, self._settings)),
            DELAY + patience(promised(Step.DELAY, self._settings)),
            self.flock.worker_timeout + patience(promised(Step.LOST_CLAIM, self._settings)),
        )

    def _note_unfinished(self, running: int, unstarted: int) -> None:
        if running:
            self._notes.append(f"{running} canaries had not ended when nothing went on any more")
        if unstarted > 0:
            self._notes.append(f"{unstarted} canaries were not started, since nothing went on")

    def report(self) -> DrillReport:
        """What came of it."""
        took = self.flock.took()
        # Of one that declined, or was called and has no worker yet, there is nothing to tell.
        told = [
            one
            for one in self.flock.canaries
            if self.flock.declined(one) is None and not (one.kind is CanaryKind.CALL and one.waits)
        ]
        probes = [probe for one in told for probe in one.probes(self.flock.worker_timeout)]
        unstarted = self._plan.processes - sum(one.kind is CanaryKind.ROUND for one in self.flock.canaries)
        probes += [Probe(Step.START, "", START_TASK, None)] * unstarted
        promises: dict[Step, PromisedTime] = {
            step: promised(step, self._settings, neighbours=self._neighbours) for step in Step
        }
        workers = [
            *(Taker(one.name, True, took.get(one.id, 0), one.id in self._killed) for one in self._crew.serving),
            *(Taker(one.name, False, 0) for one in self._crew.others),
        ]
        broken = [f"canary {one.id} broke: {one.error}" for one in self.flock.canaries if one.error]
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
"""Seconds. One takes some five, and the alert of those that fail looks for one in each of two times three minutes."""


def watch(
    resources: Resources,
    plan: DrillPlan,
    every: float,
    show: Callable[[DrillReport], None],
    tell: Tell,
    ending: threading.Event | None = None,
) -> None:
    """Run a drill every so many seconds until `ending` is set, or something is raised that does not pass by itself.
    `show` is given each report, `tell` what kept a drill from beginning. Raises InputError for the first alone."""
    ending, first = ending or threading.Event(), True
    while not ending.is_set():
        began = time.monotonic()
        try:
            run_once(resources, plan, show, tell)
        except InputError as error:
            if first:
                raise
            tell(f"no drill: {error}")
        first = False
        ending.wait(max(0.0, every - (time.monotonic() - began)))


def run_once(
    resources: Resources, plan: DrillPlan, show: Callable[[DrillReport], None], tell: Tell
) -> DrillReport | None:
    """One drill, counted; None if it could not be run."""
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
