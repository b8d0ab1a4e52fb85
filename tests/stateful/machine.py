"""What may happen to a cluster, drawn step by step; and that afterwards, without faults, all comes to its right end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from recovery import InputError, Settings
from recovery.errors import BrokerError, StoreError
from tests.faults import Course, Died, Fault, Kind, Plan
from tests.faults.plan import HALFWAY, KILLS, PAUSES
from tests.stateful import checks
from tests.stateful.cluster import IDLE, LIMIT, MESSAGE, SCANNERS, TYPES, WAITS, WORK, Cluster, go_on, held_still
from tests.stateful.documents import Documents
from tests.stateful.programs import PROGRAMS
from tests.stateful.rest import bring_to_rest

MEMBERS, PROCESSES = 4, 3

KINDS = [kind for kind in Kind if kind not in KILLS]
AT_APPLIES = (
    *(
        "Tasks.insert",
        "Decisions.insert",
        "Graphs.apply",
        "Requeues.enqueue_ready",
        "DecisionDeadlines.clear_deadlines",
        "Processes.finish",
    ),
    *("Graphs.fail", "Interruptions.add", "Processes.break_"),
)
AT_BATCHES = ("Decisions.claim", "Decisions.finish", "Graphs.apply", "Processes.finish")
AT_WORK = (
    *("Decisions.claim", "Actor.body", "Decisions.finish", "Decisions.claim_ready"),
    *("Pipeline.execute", "Requeues.requeue_unrun", *AT_APPLIES),
)
AT_SCANS = (
    *(
        "Requeues.timed_out",
        "Requeues.requeue_message_lost",
        "Requeues.enqueue_due",
        "TaskEnds.out_of_time",
        "ProcessDeadlines.break_late",
    ),
    *("Pipeline.execute", *AT_APPLIES),
)
AT_COMMANDS = (
    *(
        "RestartUpdates.queue",
        "RestartUpdates.reopen_graphs",
        "RestartUpdates.reopen_processes",
        "Interruptions.remove_before",
    ),
    *("Aborts.announce", "Aborts.end", "Aborts.close_graphs", "Aborts.end_decisions", "Interruptions.remove_all"),
    *("Redos.begin", "Redos.links", "Redos.put_back", "Redos.drop", "Redos.move", "Redos.set_graph", "Redos.end"),
)
"""Steps after which the records say something else, by who takes them: faults there tell most."""
BULKS = (
    *AT_BATCHES,
    "Decisions.claim_ready",
    "Aborts.end_decisions",
    "Tasks.insert",
    "Decisions.insert",
)
SPLITS = [kind for kind in HALFWAY if kind not in KILLS]


def _faults(edges: Sequence[str]) -> st.SearchStrategy[list[Fault]]:
    bulks = [edge for edge in edges if edge in BULKS]
    fault = st.one_of(
        *(
            [st.builds(Fault, st.sampled_from(SPLITS), st.sampled_from([0, 1]), st.sampled_from(bulks))]
            if bulks
            else []
        ),
        st.builds(Fault, st.sampled_from(KINDS), st.sampled_from([0, 0, 1, 2]), st.sampled_from(edges)),
        st.builds(Fault, st.sampled_from(PAUSES), st.just(0), st.sampled_from(edges)),
        st.builds(Fault, st.sampled_from(KINDS), st.integers(0, 40)),
    )
    some = st.lists(fault, min_size=1, max_size=3)
    return st.one_of(st.just(list[Fault]()), fault.map(lambda one: [one]), some)


WORKERS_FAULTS, SCANS_FAULTS, OPERATORS_FAULTS = _faults(AT_WORK), _faults(AT_SCANS), _faults(AT_COMMANDS)
TIMES = st.sampled_from([0.0, MESSAGE + 1, WORK + 1, IDLE + 1, LIMIT + 1])
SCANS = st.sampled_from(["decisions", *sorted(SCANNERS)])
BATCH = st.sampled_from([1, 3, 3])
KIND = st.sampled_from([*4 * TYPES[:1], *TYPES[1:]])
WHO = st.integers(0, MEMBERS - 1)


class Protocol(RuleBasedStateMachine):
    """Clients, workers and scanners, messages and time. Subclassed with the settings of real servers."""

    servers: Settings

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        self.memory = checks.Memory()
        self.reported = self.open.enter_context(held_still(self.memory.told))
        self.cluster = Cluster(self.servers)
        self.members = [self.cluster.member() for _ in range(MEMBERS)]
        self.courses: list[tuple[int, Course]] = []
        """Steps that are under way, and whose."""
        self.programs: dict[str, Any] = {}
        """{custom id: program}"""
        self.kinds: dict[str, str] = {}
        """{custom id: process type}"""
        self.replacing: dict[Course, str] = {}
        """{step by which a client asks for a process in the place of what there is: its custom id}"""
        self.unseen = True
        """Whether something may have changed since the records were checked."""
        self.odd = count()
        """Seconds by which no time that passes is like one before: else milliseconds would decide what is older."""

    @initialize(program=PROGRAMS, kind=KIND, on_the_spot=st.booleans(), batch=BATCH, by_itself=st.booleans())
    def first(self, program: Any, kind: str, on_the_spot: bool, batch: int = 1, by_itself: bool = False) -> None:
        """There is something to do."""
        self._start(program, kind, [], on_the_spot, batch, by_itself)

    @precondition(lambda self: len(self.programs) < PROCESSES)
    @rule(
        program=PROGRAMS,
        kind=KIND,
        faults=WORKERS_FAULTS,
        on_the_spot=st.booleans(),
        batch=BATCH,
        by_itself=st.booleans(),
    )
    def start(
        self,
        program: Any,
        kind: str,
        faults: list[Fault],
        on_the_spot: bool,
        batch: int = 1,
        by_itself: bool = False,
    ) -> None:
        """A client asks for a process. From now on ready tasks go through Redis, or do not; what is quick is taken
        together, or is not; and a slot goes on with what else is queued, or does not."""
        self._start(program, kind, faults, on_the_spot, batch, by_itself)

    def _start(
        self, program: Any, kind: str, faults: list[Fault], on_the_spot: bool, batch: int, by_itself: bool
    ) -> None:
        # What is done on the spot is no message, and in no batch.
        go_on(on_the_spot and batch == 1, batch, by_itself=by_itself)
        custom_id = f"order {len(self.programs)}"
        self.programs[custom_id], self.kinds[custom_id] = program, kind
        self._begin(0, Plan(*faults), lambda: self.cluster.start(program, custom_id, kind))

    @rule(which=st.integers(0, 9), faults=OPERATORS_FAULTS)
    def starts_another(self, which: int, faults: list[Fault]) -> None:
        """A client asks for a process in the place of the one that there is, if that has ended."""
        custom_id = list(self.programs)[which % len(self.programs)]
        program, kind = self.programs[custom_id], self.kinds[custom_id]
        course = Course(lambda: self.cluster.start(program, custom_id, kind, "new_after_end"), Plan(*faults))
        self.replacing[course] = custom_id
        self._advance(0, course)

    @rule(who=WHO, queue=st.integers(0, 6), faults=WORKERS_FAULTS)
    def work(self, who: int, queue: int, faults: list[Fault]) -> None:
        """A worker that has nothing to do takes a message and runs it. If all of them pause, one goes on; if there is
        no message, one is looked for."""
        busy = {one for one, _ in self.courses}
        free = [one for one in range(MEMBERS) if one not in busy]
        if not free:
            self.go_on(who)
            return
        if not self._take(free[who % len(free)], queue, faults):
            self.scan(who, "decisions", MESSAGE + 1, 100, faults)

    def _take(self, who: int, queue: int, faults: list[Fault]) -> bool:
        member = self.members[who]
        if (message := self.cluster.take(member, queue)) is None:
            return False
        self._begin(who, Plan(*faults), lambda: self.cluster.run(member, message))
        return True

    @rule(which=st.integers(0, 9))
    def go_on(self, which: int) -> None:
        """Who paused goes on, to its next pause or its end; if nobody did, a worker begins something."""
        if self.courses:
            self._advance(*self.courses.pop(which % len(self.courses)))
        else:
            self._take(which % MEMBERS, which, [Fault(Kind.PAUSE, which)])

    @rule(which=st.integers(0, 9), by=st.sampled_from(["a requeue", "an attempt", "a result"]))
    def is_overtaken(self, which: int, by: str) -> None:
        """Who pauses goes on when its time is over, and another has begun or done what it does."""
        if not self.courses:
            self._take(which % MEMBERS, which, [Fault(Kind.PAUSE, 0, "Actor.body")])
            return
        zombie = self.courses.pop(which % len(self.courses))
        self.scan(zombie[0], "decisions", WORK, 100, [])
        if by != "a requeue":
            pause = [Fault(Kind.PAUSE, 0, "Actor.body")] if by == "an attempt" else []
            for _ in self.cluster.app.actors:
                self.members.append(self.cluster.member())
                self._take(len(self.members) - 1, 0, pause)
        self._advance(*zombie)

    @rule(who=WHO)
    def a_task_is_slow(self, who: int) -> None:
        """What a slot has in hand beside a task that it runs is taken out, by another thread of its process."""
        self.unseen |= self.members[who].watch.relieve()

    @rule(who=WHO, faults=WORKERS_FAULTS)
    def look_after(self, who: int, faults: list[Fault]) -> None:
        """A worker's threads do what they do now and then: they apply, and tell what was polled."""
        member = self.members[who]

        def look_after() -> None:
            member.outbox.flush()
            self.cluster.beat(member)

        self._begin(who, Plan(*faults), look_after)

    @rule(who=WHO, noticed=st.booleans())
    def worker_dies(self, who: int, noticed: bool) -> None:
        """A worker is killed; another on its host may see that."""
        gone = self.members[who].worker.id
        self._die(who)
        if noticed:
            self.cluster.rescue(self.members[who], gone)
            self.unseen = True

    @rule(who=WHO, name=SCANS, after=TIMES, page=st.sampled_from([1, 100]), faults=SCANS_FAULTS)
    def scan(self, who: int, name: str, after: float, page: int, faults: list[Fault]) -> None:
        """A scanner runs, after some time has passed."""
        self.cluster.passing.pass_by(after and after + next(self.odd))
        member, plan = self.members[who], Plan(*faults)

        def scan() -> None:
            error = self.cluster.scan(member, name, page)
            assert error is None or plan.told, error

        self._begin(who, plan, scan)

    @rule(queue=st.integers(0, 2), what=st.sampled_from(["all lost", "lost", "doubled", "turned round"]))
    def messages_are(self, queue: int, what: str) -> None:
        """Redis, and what lies in it."""
        names, broker = sorted(self.cluster.app.actors), self.cluster.redis
        name = names[queue % len(names)]
        if what == "all lost":
            broker.flushdb()
        elif what == "lost":
            broker.lpop(name)
        elif what == "turned round":
            broker.lmove(name, name, "LEFT", "RIGHT")
        elif (text := broker.lindex(name, 0)) is not None:
            broker.lpush(name, text)

    @rule(
        who=WHO,
        which=st.integers(0, 9),
        what=st.sampled_from(["a process", "a process", "a task", "all"]),
        mends=st.booleans(),
        faults=OPERATORS_FAULTS,
    )
    def operator_restarts(self, who: int, which: int, what: str, mends: bool, faults: list[Fault]) -> None:
        """An operator has what failed run again; what was wrong may have been mended before."""
        self.cluster.mended |= mends
        process_id, task = None, None
        if what != "all":
            process_id, task = self.cluster.failed(which)
        ids = [process_id] if process_id is not None else self.cluster.processes()
        self.memory.restarts.update(ids)
        self.memory.of_all += [frozenset(ids)] if process_id is None else []
        one = task if what == "a task" else None
        self._operate(who, faults, lambda: self.cluster.restart(self.members[who], process_id, one))

    @rule(who=WHO, which=st.integers(0, 11), faults=OPERATORS_FAULTS)
    def operator_aborts(self, who: int, which: int, faults: list[Fault]) -> None:
        """An operator ends a process; most often there is none to be ended."""
        ids = self.cluster.processes()
        if which < len(ids):
            self.memory.aborts.add(ids[which])

            def abort() -> None:
                self.cluster.abort(self.members[who], ids[which])
                self.memory.settled.add(ids[which])

            self._operate(who, faults, abort)

    @rule(who=WHO, which=st.integers(0, 9), task=st.integers(0, 9), faults=OPERATORS_FAULTS)
    def operator_redoes(self, who: int, which: int, task: int, faults: list[Fault]) -> None:
        """An operator has a process done again from any of its tasks, whether it runs, broke or finished."""
        ids = self.cluster.processes()
        if ids:
            process_id = ids[which % len(ids)]
            self._operate(who, faults, lambda: self.cluster.redo(self.members[who], process_id, task))

    def _operate(self, who: int, faults: list[Fault], command: Callable[[], None]) -> None:
        def operate() -> None:
            with suppress(InputError):  # there is nothing to restart or to abort, any more
                command()

        self._begin(who, Plan(*faults), operate)

    # No precondition tells of pauses: what is drawn must not depend on what was done, where chance and time take part.
    # Hypothesis draws from the rules evenly: what matters most stands here more than once.
    work_again, work_on, work_once_more = work, work, work
    scan_again, scan_once_more = scan, scan

    @invariant()
    def holds(self) -> None:
        """The six invariants (docs/records.md), after every step."""
        if self.unseen:
            self.memory.check(checks.read(self.cluster.database))
            self.unseen = False

        assert not self.reported, f"went wrong and was passed over: {self.reported}"

    def teardown(self) -> None:
        failed = sys.exc_info()[0] is not None
        try:
            if not failed:
                self._come_to_rest()
        finally:
            for _, course in self.courses:
                course.die()
            self.open.close()

    def _come_to_rest(self) -> None:
        """No more faults. Who still pauses is overtaken: some by a requeue of what they do, some by its result."""
        for custom_id, program in self.programs.items():
            self.cluster.start(program, custom_id, self.kinds[custom_id])
        self.scan(0, "decisions", WORK, 100, [])
        half = (len(self.courses) + 1) // 2
        self._let_go_on(len(self.courses) - half)
        found = self._rest()
        if half:
            self._let_go_on(half)
            found = self._rest()
        if found["interruptions"]:
            self.cluster.mended = True
            self.memory.restarts.update(list(found["processes"]))
            self.cluster.restart(self.cluster.member(), None)
            self._rest(mended=True)

    def _rest(self, mended: bool = False) -> Documents:
        found = bring_to_rest(self.cluster, self.programs, self.memory, mended)
        assert not self.reported, f"went wrong and was passed over: {self.reported}"
        return found

    def _let_go_on(self, count: int) -> None:
        """So many of those that pause go on to their ends, or until they wait for one that pauses still."""
        going = [course for _, course in self.courses[:count]]
        brought_on = True
        while brought_on:
            brought_on = False
            for who, course in [one for one in self.courses if one[1] in going]:
                if course.over:  # its process has died meanwhile
                    continue
                self.courses = [one for one in self.courses if one[1] is not course]
                waited = course.at == WAITS
                self._advance(who, course)
                self.holds()
                brought_on |= not (waited and course.at == WAITS)

    def _begin(self, who: int, plan: Plan, work: Callable[[], Any]) -> None:
        self._advance(who, Course(work, plan))

    def _advance(self, who: int, course: Course) -> None:
        """Let a step of a member go on to its next pause or its end. An error that was not planned is a bug."""
        self.unseen = True
        if course in self.replacing:
            # Not only when it began: while it paused another may have done the same, and what that started broke.
            broken = {"customId": self.replacing[course], "state": "broken"}
            self.memory.aborts.update(one["_id"] for one in self.cluster.database["processes"].find(broken))
        if not course.go():
            self.courses.append((who, course))
            return
        self.memory.ended(course.thread, course.plan.cut_off)
        if isinstance(course.error, Died):
            self._die(who)
        elif course.error is not None and not (course.plan.told and _is_of_a_server(course.error)):
            raise course.error

    def _die(self, who: int) -> None:
        """A process ends: so does whatever it was doing, and what it had in memory. Another takes its place."""
        for one, course in self.courses:
            if one == who:
                course.die()
                self.memory.ended(course.thread, cut_off=True)
        self.courses = [(one, course) for one, course in self.courses if one != who]
        self.members[who] = self.cluster.member()


def _is_of_a_server(error: BaseException) -> bool:
    """Whether it began with a lost connection."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, StoreError | BrokerError | PyMongoError | RedisError)


def on(servers: Settings) -> type[Protocol]:
    """The machine on these servers."""
    return type("Protocol", (Protocol,), {"servers": servers})
