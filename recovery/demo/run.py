"""A whole demo: servers, workers that are killed, processes, and what came of it.

Promises: no process is left behind, however the demo ends (also by Ctrl-C, SIGTERM or SIGKILL), and no file
but the folder of a demo that failed (or was to keep it), which is named.

The servers are started for the demo, unless the settings name some; then its database is a new one, dropped
after a good end, and its queues are those of every demo at that broker: run one at a time there.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from recovery.demo import ledger
from recovery.demo.app import APP, failure_environment
from recovery.demo.audit import RunRecord, audit
from recovery.demo.demo_report import Counts, DemoReport, DisasterOutcome, InjectedFaults, report
from recovery.demo.disaster import BulkRepair, BulkRepairResult, Destroyed, strike
from recovery.demo.drill_comparison import Compared, compare
from recovery.demo.options import Chaos, Disaster, Options
from recovery.demo.screen import DemoFigures, Screen
from recovery.demo.trouble import Trouble
from recovery.demo.watching import DemoWatch, standing
from recovery.demo.workforce import READY_TIMEOUT, Workforce
from recovery.drill import drilling
from recovery.engine import Resources
from recovery.errors import InputError, ServerUnavailable
from recovery.settings import Settings, load
from recovery.stack import Stack
from recovery.store import check_server
from recovery.wfformat import Workflow, workload

DEADLINES = {
    # A killed worker is seen by its neighbour at its next heartbeat; all else within seconds too, to be watched.
    ("heartbeat_interval", "heartbeat_timeout"): (1.0, 3.0),
    ("idle_timeout",): (3.0,),
    ("message_timeout",): (3.0,),
    ("apply_timeout",): (2.0,),
}
"""The demo's own defaults. What the environment or a file sets goes before."""
UNHURRIED = {("idle_timeout",): (20.0,)}
"""Where records are destroyed: it is for the operation to repair it, and not for scanners that are at it within
seconds. Messages that are gone scanners find first, whatever the timeouts are: both know it by the same age."""

LOOK_EVERY = 0.1
DRILLED = 5
"""Canaries of a drill."""
BEGUN = 0.1
"""Part of all tasks that are done when a disaster strikes."""


def run(options: Options, progress: Screen) -> DemoReport:
    """Run a demo and tell what came of it. Raises RecoveryError if it could not be run. Call it in
    a block that turns signals into exceptions: whatever is raised, what was started is stopped in order."""
    workflows = options.workflows()
    given = load()
    if given.metrics_port:
        raise InputError("unset metrics_port (RECOVERY_METRICS_PORT): all workers of the demo would ask for that port")
    folder = Path(tempfile.mkdtemp(prefix="recovery-demo-"))
    keep = False
    try:
        found = _Demo(options, workflows, given, folder, progress).run()
        keep = options.keep or not found.good
    except Exception as error:
        keep = True
        error.add_note(f"logs: {folder}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        progress.note(f"logs and ledger: {folder}")
    return found


class _Demo:
    def __init__(
        self, options: Options, workflows: list[Workflow], given: Settings, folder: Path, progress: Screen
    ) -> None:
        self.options, self.workflows, self.folder, self.progress = options, workflows, folder, progress
        named = given.model_fields_set
        self.stack = Stack(
            folder,
            mongo_nodes=3 if options.chaos else 1,
            mongo_uri=given.mongo_uri if "mongo_uri" in named else None,
            broker_url=given.broker_url if "broker_url" in named else None,
        )
        self.settings = _settings(given, self.stack, options)
        quiet = options.chaos or options.disaster is not None
        self.chaos = Chaos(0.0 if quiet else options.kill_every, options.seed)
        self.destroyed: Destroyed | None = None
        self.repaired: BulkRepairResult | None = None
        self.drilled: Compared | None = None
        self.ledger, self.metrics, self.scratch = folder / "ledger.jsonl", folder / "metrics", folder / "tmp"
        for part in (self.metrics, self.scratch):
            part.mkdir()
        self.workforce = Workforce(self.stack, self._environment(), self.chaos, self.metrics)
        self.watch = DemoWatch(
            DemoFigures(processes=options.processes, workers=options.workers), self.ledger, self.metrics
        )
        self.trouble = Trouble(options, self.stack, self.workforce, self.chaos, progress.struck)

    def run(self) -> DemoReport:
        self.progress.say(f"starting servers and {self.options.workers} workers (seed {self.chaos.seed})")
        with self.stack:
            check_server(self.settings.mongo_uri)
            resources = Resources.connect(self.settings)
            resources.broker.check()
            resources.store.layout.create()
            try:
                wall = (self._recover if self.options.disaster else self._work)(resources)
                if self.options.drill:
                    self._drill(resources)
                self.workforce.dismiss()
                found = self._report(resources, wall)
            finally:
                self.workforce.dismiss()
            if found.good:
                resources.store.layout.drop()
            return found

    def _work(self, resources: Resources) -> float:
        """Start processes and wait for their ends; the seconds that took."""
        self.workforce.start(self.options.workers)
        self._await_workers(resources)
        began = time.monotonic()
        no_more = began + self.options.go_on
        starting = workload.WorkflowStarts(resources, self.workflows, self.options.time_scale)
        self.trouble.start(resources)
        pause = threading.Event()
        try:
            while (more := self._more(no_more)) or self.watch.running():
                if more:
                    self._start_some(starting, resources, no_more)
                self._tick(resources)
                pause.wait(LOOK_EVERY)
                self.watch.look(resources)
                if time.monotonic() > no_more + self.options.timeout:
                    break
        finally:
            self.trouble.stop()
        took = time.monotonic() - began
        for run in self.watch.running():  # while the workers are there: who judges by deadlines must see them served
            run.standing = standing(resources, run.id)
        return took

    def _drill(self, resources: Resources) -> None:
        """Run a drill on what is there now, kills included, and hold it against what its canaries wrote down."""
        deadline, pause = time.monotonic() + READY_TIMEOUT, threading.Event()
        while not self.workforce.settled(resources.store):
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"the workers are not ready for a drill after {READY_TIMEOUT:g} s")
            pause.wait(LOOK_EVERY)
        plan = drilling.DrillPlan(DRILLED, kill=True, why="the end of a demo")
        self.drilled = compare(drilling.run(resources, plan, self.progress.note), ledger.read_flights(self.ledger))

    def _recover(self, resources: Resources) -> float:
        """Start all processes, destroy what is to be destroyed once they are at work, and have it repaired; the seconds
        from there to their ends."""
        assert self.options.disaster is not None
        self._start_some(workload.WorkflowStarts(resources, self.workflows, self.options.time_scale), resources, 0.0)
        self.workforce.start(self.options.workers, spark=self.options.spark)
        self._await_workers(resources)
        pause, until = threading.Event(), time.monotonic() + self.options.timeout
        while self.watch.standing(kills=0, faults=0).done < BEGUN * sum(len(r.workflow.tasks) for r in self.watch.runs):
            self._follow(resources, pause, until)
        began = time.monotonic()
        gone = self.destroyed = strike(resources, self.stack.valkey, self.options.disaster, self.chaos.seed)
        self.progress.struck(gone.what)
        kill = self._kill_all if self.options.kill_half_way else None
        repair = BulkRepair(
            resources,
            self.progress.note,
            lambda: self._follow(resources, pause, until),
            kill,
            spark=self.options.spark,
        )
        self.repaired = repair.run(until)
        while any(run.id not in gone.processes for run in self.watch.running()) and time.monotonic() < until:
            self._follow(resources, pause, until)
        took = time.monotonic() - began
        for run in self.watch.running():
            if run.id not in gone.processes:
                run.standing = standing(resources, run.id)
        return took

    def _follow(self, resources: Resources, pause: threading.Event, until: float) -> None:
        if time.monotonic() > until:
            return
        self._tick(resources)
        pause.wait(LOOK_EVERY)
        self.watch.look(resources)

    def _kill_all(self) -> None:
        for _ in range(self.options.workers):
            self.progress.struck(f"{self.workforce.kill_worker()} killed with its pool")
        if self.options.spark:
            self.progress.struck(f"{self.workforce.kill_driver()}, the driver, killed with its Spark")

    def _more(self, no_more: float) -> bool:
        """Whether processes are still to be started."""
        return len(self.watch.runs) < self.options.processes or time.monotonic() < no_more

    def _start_some(self, starting: workload.WorkflowStarts, resources: Resources, no_more: float) -> None:
        """Start processes until there are as many as there should be at once, or the database is away."""
        while self._more(no_more) and len(self.watch.running()) < self.options.processes:
            try:
                started = starting.next()
            except ServerUnavailable as error:
                self.progress.note(f"not started yet: {error}")
                return
            self.watch.add(started)
            self._tick(resources)

    def _await_workers(self, resources: Resources) -> None:
        deadline, pause = time.monotonic() + READY_TIMEOUT, threading.Event()
        while not self.workforce.ready(resources.store):
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"the workers are not ready {READY_TIMEOUT:g} s after their start")
            pause.wait(LOOK_EVERY)

    def _tick(self, resources: Resources) -> None:
        self.trouble.tick(resources)
        faults = sum(self.trouble.struck.values())
        self.progress.show(self.watch.standing(kills=self.workforce.kills, faults=faults))

    def _report(self, resources: Resources, wall: float) -> DemoReport:
        runs = self.watch.runs
        self.watch.look_at_the_end(resources)
        lines, gone = ledger.read(self.ledger), self.destroyed
        found = audit(lines, map(RunRecord.of, runs))
        beyond = {run.id: why for run in runs if gone is not None and (why := gone.unrecoverable(run)) is not None}
        return report(
            runs,
            gone.told_by(found, lines, beyond, runs) if gone is not None else found,
            Counts.read(self.metrics),
            wall,
            injected=InjectedFaults(
                seed=self.chaos.seed,
                kills=self.workforce.kills,
                by_kind=self.trouble.struck,
                chaos=self.options.chaos,
            ),
            live_without_deadline=self.watch.without_deadline,
            disaster=DisasterOutcome(unrecoverable=beyond, repair=self.repaired) if gone is not None else None,
            drill=self.drilled,
        )

    def _environment(self) -> dict[str, str]:
        return {
            **self.settings.environment(),
            ledger.VARIABLE: str(self.ledger),
            **failure_environment(self.options.fail, self.chaos.seed),
            "TMPDIR": str(self.scratch),  # what killed workers leave in it goes with the folder
        }


def _settings(given: Settings, stack: Stack, options: Options) -> Settings:
    disaster = options.disaster
    ours: dict[str, Any] = {"canary": True, "drill_kill": True} if options.drill else {}
    for names, values in (DEADLINES | (UNHURRIED if disaster in (Disaster.GRAPH, Disaster.MIXED) else {})).items():
        if not given.model_fields_set & set(names):
            ours |= dict(zip(names, values, strict=True))
    return load(
        **ours,
        app=APP,
        mongo_uri=stack.mongo_uri,
        broker_url=stack.broker_url,
        database=f"recovery_demo_{uuid.uuid4().hex[:12]}",
    )
