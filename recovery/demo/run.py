"""Runs a demo: servers, workers that are killed, processes, and the report.

However the demo ends (also by Ctrl-C, SIGTERM or SIGKILL), it leaves no process behind. It leaves no file except the
folder of a demo that failed or was to keep it; the folder is named.

The servers are started for the demo, unless the settings name existing ones. On an existing MongoDB the demo creates
its own database, and drops it after a good end. On an existing broker all demos share their queues, so run one demo at
a time there.
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
    # A neighbour notices a killed worker at its next heartbeat. All other losses are noticed within seconds too,
    # because a person watches.
    ("heartbeat_interval", "heartbeat_timeout"): (1.0, 3.0),
    ("idle_timeout",): (3.0,),
    ("message_timeout",): (3.0,),
    ("apply_timeout",): (2.0,),
}
"""The demo's own defaults. Settings from the environment or a file take precedence."""
UNHURRIED = {("idle_timeout",): (20.0,)}
"""Timeouts for disasters that destroy records. They are long, so that the operation repairs the records before scanners
do. For lost messages a long timeout would not help, because the operation finds them at the same age as scanners do."""

LOOK_EVERY = 0.1
DRILLED = 5
"""Canaries of a drill."""
BEGUN = 0.1
"""Fraction of all tasks that are done when a disaster strikes."""


def run(options: Options, progress: Screen) -> DemoReport:
    """Run a demo, and return its report.

    Call it in a block that turns signals into exceptions. Whatever is raised, everything that was started is stopped in
    order. Raises RecoveryError if the demo could not be run.
    """
    workflows = options.workflows()
    settings = load()
    if settings.metrics_port:
        raise InputError("unset metrics_port (RECOVERY_METRICS_PORT): all workers of the demo would ask for that port")
    folder = Path(tempfile.mkdtemp(prefix="recovery-demo-"))
    keep = False
    try:
        demo_report = _Demo(options, workflows, settings, folder, progress).run()
        keep = options.keep or not demo_report.good
    except Exception as error:
        keep = True
        error.add_note(f"logs: {folder}")
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        progress.note(f"logs and ledger: {folder}")
    return demo_report


class _Demo:
    def __init__(
        self, options: Options, workflows: list[Workflow], settings: Settings, folder: Path, progress: Screen
    ) -> None:
        self.options, self.workflows, self.folder, self.progress = options, workflows, folder, progress
        given_names = settings.model_fields_set
        self.stack = Stack(
            folder,
            mongo_nodes=3 if options.chaos else 1,
            mongo_uri=settings.mongo_uri if "mongo_uri" in given_names else None,
            broker_url=settings.broker_url if "broker_url" in given_names else None,
        )
        self.settings = _settings(settings, self.stack, options)
        without_kills = options.chaos or options.disaster is not None
        self.chaos = Chaos(0.0 if without_kills else options.kill_every, options.seed)
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
                wall_seconds = (self._recover if self.options.disaster else self._work)(resources)
                if self.options.drill:
                    self._drill(resources)
                self.workforce.dismiss()
                demo_report = self._report(resources, wall_seconds)
            finally:
                self.workforce.dismiss()
            if demo_report.good:
                resources.store.layout.drop()
            return demo_report

    def _work(self, resources: Resources) -> float:
        """Start processes and wait until they end. Return the seconds that took."""
        self.workforce.start(self.options.workers)
        self._await_workers(resources)
        began_at = time.monotonic()
        last_start = began_at + self.options.go_on
        starts = workload.WorkflowStarts(resources, self.workflows, self.options.time_scale)
        self.trouble.start(resources)
        pause = threading.Event()
        try:
            while (must_start := self._must_start(last_start)) or self.watch.running():
                if must_start:
                    self._start_processes(starts, resources, last_start)
                self._tick(resources)
                pause.wait(LOOK_EVERY)
                self.watch.look(resources)
                if time.monotonic() > last_start + self.options.timeout:
                    break
        finally:
            self.trouble.stop()
        seconds = time.monotonic() - began_at
        for run in self.watch.running():  # judged while the workers are alive, because they handle overdue deadlines
            run.standing = standing(resources, run.id)
        return seconds

    def _drill(self, resources: Resources) -> None:
        """Run a drill with kills on the live workers, and compare its times with the ledger."""
        deadline, pause = time.monotonic() + READY_TIMEOUT, threading.Event()
        while not self.workforce.settled(resources.store):
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"the workers are not ready for a drill after {READY_TIMEOUT:g} s")
            pause.wait(LOOK_EVERY)
        plan = drilling.DrillPlan(DRILLED, kill=True, why="the end of a demo")
        self.drilled = compare(drilling.run(resources, plan, self.progress.note), ledger.read_flights(self.ledger))

    def _recover(self, resources: Resources) -> float:
        """Start all processes, destroy records once they are at work, and repair them. Return the seconds from the
        destruction to the processes' ends."""
        assert self.options.disaster is not None
        self._start_processes(
            workload.WorkflowStarts(resources, self.workflows, self.options.time_scale), resources, 0.0
        )
        self.workforce.start(self.options.workers, spark=self.options.spark)
        self._await_workers(resources)
        pause, until = threading.Event(), time.monotonic() + self.options.timeout
        while self.watch.standing(kills=0, faults=0).done < BEGUN * sum(
            len(run.workflow.tasks) for run in self.watch.runs
        ):
            self._follow(resources, pause, until)
        began_at = time.monotonic()
        destroyed = self.destroyed = strike(resources, self.stack.valkey, self.options.disaster, self.chaos.seed)
        self.progress.struck(destroyed.what)
        kill = self._kill_all if self.options.kill_half_way else None
        repair = BulkRepair(
            resources,
            self.progress.note,
            lambda: self._follow(resources, pause, until),
            kill,
            spark=self.options.spark,
        )
        self.repaired = repair.run(until)
        while any(run.id not in destroyed.processes for run in self.watch.running()) and time.monotonic() < until:
            self._follow(resources, pause, until)
        seconds = time.monotonic() - began_at
        for run in self.watch.running():
            if run.id not in destroyed.processes:
                run.standing = standing(resources, run.id)
        return seconds

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

    def _must_start(self, last_start: float) -> bool:
        """Return whether more processes are to be started."""
        return len(self.watch.runs) < self.options.processes or time.monotonic() < last_start

    def _start_processes(self, starts: workload.WorkflowStarts, resources: Resources, last_start: float) -> None:
        """Start processes until enough are running, or the database is unavailable."""
        while self._must_start(last_start) and len(self.watch.running()) < self.options.processes:
            try:
                started = starts.next()
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
        lines, destroyed = ledger.read(self.ledger), self.destroyed
        findings = audit(lines, map(RunRecord.of, runs))
        unrecoverable = {
            run.id: reason
            for run in runs
            if destroyed is not None and (reason := destroyed.unrecoverable(run)) is not None
        }
        return report(
            runs,
            destroyed.told_by(findings, lines, unrecoverable, runs) if destroyed is not None else findings,
            Counts.read(self.metrics),
            wall,
            injected=InjectedFaults(
                seed=self.chaos.seed,
                kills=self.workforce.kills,
                by_kind=self.trouble.struck,
                chaos=self.options.chaos,
            ),
            live_without_deadline=self.watch.without_deadline,
            disaster=DisasterOutcome(unrecoverable=unrecoverable, repair=self.repaired)
            if destroyed is not None
            else None,
            drill=self.drilled,
        )

    def _environment(self) -> dict[str, str]:
        return {
            **self.settings.environment(),
            ledger.VARIABLE: str(self.ledger),
            **failure_environment(self.options.fail, self.chaos.seed),
            "TMPDIR": str(self.scratch),  # files of killed workers are removed with the folder
        }


def _settings(settings: Settings, stack: Stack, options: Options) -> Settings:
    disaster = options.disaster
    overrides: dict[str, Any] = {"canary": True, "drill_kill": True} if options.drill else {}
    for names, values in (DEADLINES | (UNHURRIED if disaster in (Disaster.GRAPH, Disaster.MIXED) else {})).items():
        if not settings.model_fields_set & set(names):
            overrides |= dict(zip(names, values, strict=True))
    return load(
        **overrides,
        app=APP,
        mongo_uri=stack.mongo_uri,
        broker_url=stack.broker_url,
        database=f"recovery_demo_{uuid.uuid4().hex[:12]}",
    )
