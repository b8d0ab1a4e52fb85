"""One range read in key order: which of its processes are plainly at rest, and outlines of the others.

Most of what a database holds is finished. For such a process a few comparisons of raw documents show that
no rule can have anything against it; building its records would take ten times as long. Nothing is held but
a page of each collection, some hundred outlines, and what the decisions of processes at rest look like (`Forms`).

Task records, half of all, no rule asks for once a process is at rest. So they are counted, and read only of what is
not. Where a range has as many of them as that makes, none is of a process that is gone, unless as many are lacking.

Whoever goes through a range holds a lease on it, so he hears of each portion that was read, whatever it had in it: a
range that is healthy takes as long as any other.

The streams are not read at one moment. That does no harm: what is at rest stays so, and what seems
not to be is read again before anything is said of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.records import DecisionState, ProcessState
from recovery.records.ids import SEPARATOR
from recovery.store import TASK_BYTES, schema
from recovery.store.client import Document
from recovery.store.raw_pages import aware
from recovery.store.views.ranges import KEY, PAGE, Range, Ranges, weight
from recovery.survey.record_streams import Forms, RawStream, RecordForm, Stream

READ_EACH = PAGE
"""Records after which who goes through a range hears of it: a tenth of a second's work."""
CUT_EACH = 20 * PAGE
"""Records that the server looks through for damage at once: a third of a second's work."""
TOGETHER = 400
"""Outlines that are judged at once, if they are small: each time takes five round trips."""
TOGETHER_BYTES = 2_000_000
"""And so many bytes of decisions as they were read, and of graphs about; decoded they take ten times as much."""
ENDED, DECIDED = ProcessState.FINISHED.value, DecisionState.FINISHED.value


@dataclass(slots=True)
class RangeCounts:
    """How much was read."""

    processes: int = 0
    decisions: int = 0
    tasks: int = 0
    """Task records: of what is at rest as many as decisions, since they are not read; of the rest whoever reads them
    counts them."""
    orphans: set[str] = field(default_factory=set)
    """Ids of which there are records, and no process was met; some of a great many. Whether there is one is asked."""
    cuts: list[str] = field(default_factory=list)
    """Processes between which are some `CUT_EACH` records."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A process that is not plainly at rest: its documents as they were read, briefly."""

    process: Document
    graphs: list[Document]
    keys: list[str]
    """Of its decisions."""
    decisions: list[Document]


def survey(
    stored: Ranges, part: Range, seen: RangeCounts, chosen: Container[str] | None = None
) -> Iterator[list[Outline]]:
    """Read a range, count what is `seen`, and outline what is not plainly at rest; of the chosen ones, if given.

    As many outlines at a time as may be held in memory at once; and none after each portion that was read meanwhile.
    """
    outliner = _Outliner(stored, part, seen)
    read, reported, next_cut = 0, 0, CUT_EACH
    for page in stored.pages(schema.PROCESSES, part, naive=True):
        for process in page:
            process_id = process["_id"]
            if read >= next_cut:
                seen.cuts.append(process_id)
                next_cut += CUT_EACH
            read += 1
            if chosen is not None and process_id not in chosen:
                continue
            read += outliner.add(process)
            if outliner.is_full:
                yield outliner.take()
            elif read >= reported + READ_EACH:
                yield []
                reported = read
        yield []
    if outliner.outlines:
        yield outliner.take()
    if chosen is None:
        for _ in outliner.pass_over_rest():
            yield []


class _Outliner:
    """Reads the graphs and decisions of a range, process by process, and counts them.

    Collects outlines of the processes that are not plainly at rest.
    """

    def __init__(self, stored: Ranges, part: Range, seen: RangeCounts) -> None:
        self._stored, self._seen = stored, seen
        self._graphs = Stream(stored.pages(schema.GRAPHS, part, naive=True))
        self._decisions = RawStream(stored.raw_pages(schema.DECISIONS, part))
        self._forms = Forms()
        self.outlines: list[Outline] = []
        self._outline_bytes = 0

    def add(self, process: Document) -> int:
        """Read and count the records of the next process, in order of ids. Return its number of decisions."""
        process_id, seen = process["_id"], self._seen
        _, graphs = self._graphs.take(process_id)
        finished, key = _finished(process, graphs), process_id.encode()
        self._decisions.pass_over_before(key)
        count = _known(self._decisions, key, self._forms.of(finished)) if finished is not None else None
        if count is None:
            count = self._decode(process, graphs, finished, key)
        else:
            seen.tasks += count
        seen.processes += 1
        seen.decisions += count
        return count

    def _decode(self, process: Document, graphs: list[Document], finished: frozenset[str] | None, key: bytes) -> int:
        """Decode the decisions of a process whose form is not known. Remember the form if the process is at rest;
        otherwise keep an outline. Return its number of decisions."""
        records = self._decisions.take(key)
        decisions = self._stored.decoded(records)
        process, graphs, count = aware(process), [*map(aware, graphs)], len(decisions)
        outline = Outline(process, graphs, [decision["_id"] for decision in decisions], decisions)
        if finished is not None and _decided(outline, finished):
            self._forms.learn(finished, key, records, count)
            self._seen.tasks += count
        else:
            self.outlines.append(outline)
            self._outline_bytes += len(records) + TASK_BYTES * weight(schema.GRAPHS, graphs)
        return count

    @property
    def is_full(self) -> bool:
        """Whether there are as many outlines as may be held in memory at once."""
        return len(self.outlines) == TOGETHER or self._outline_bytes > TOGETHER_BYTES

    def take(self) -> list[Outline]:
        """Return the outlines collected so far and begin a new list."""
        outlines, self.outlines, self._outline_bytes = self.outlines, [], 0
        return outlines

    def pass_over_rest(self) -> Iterator[None]:
        """Read the remaining graphs and decisions, page by page. They belong to no process, so the ids of their
        processes are orphans."""
        for stream in (self._graphs, self._decisions):
            yield from stream.pass_over_rest()
            self._seen.orphans |= stream.passed_over


def _known(decisions: RawStream, process_id: bytes, known: Iterable[RecordForm]) -> int | None:
    """How many decisions come of a process, if they are in one of these forms; they are passed over then."""
    for form in known:
        if decisions.comes(process_id, form.of(process_id)):
            return form.count
    return None


def look_for_tasks(stored: Ranges, part: Range, seen: RangeCounts, *, thorough: bool) -> Iterator[None]:
    """Add to the orphans of a range that was read whole those of which nothing but Task records is left, page by page.
    Where there are as many as were seen, only if `thorough`."""
    if thorough or stored.how_many_tasks(part) != seen.tasks:
        yield from _look_for(stored, part, (schema.TASKS,), seen.orphans)


def without_process(stored: Ranges, part: Range, names: Sequence[str] = schema.OF_PROCESSES[1:]) -> set[str]:
    """Ids of which there are records in these collections, and no process was met; some of a great many. Reads keys
    alone."""
    found = set[str]()
    for _ in _look_for(stored, part, names, found):
        pass
    return found


def _look_for(stored: Ranges, part: Range, names: Sequence[str], found: set[str]) -> Iterator[None]:
    streams = [Stream(stored.pages(name, part, KEY)) for name in names]
    for page in stored.pages(schema.PROCESSES, part, KEY):
        for process in page:
            for stream in streams:
                stream.take(process["_id"])
        yield
    for stream in streams:
        yield from stream.pass_over_rest()
        found |= stream.passed_over


def _finished(process: Document, graphs: Sequence[Document]) -> frozenset[str] | None:
    """The tasks of a process that is finished by its own record and its graph; None: it is not, or something else
    stands there, which the rules will tell."""
    if process.get("state") != ENDED or len(graphs) != 1 or "removing" in process:
        return None
    graph = graphs[0]
    if graph.get("notFinished") or graph.get("failed") or "recoveryTime" in graph:
        return None
    try:
        return frozenset(graph.get("finished", ()))
    except TypeError:
        return None


def _decided(outline: Outline, finished: frozenset[str]) -> bool:
    """Whether the decisions agree with that."""
    place = len(outline.process["_id"]) + len(SEPARATOR)
    if finished != {key[place:] for key in outline.keys}:
        return False
    try:
        return all(
            one.get("state") == DECIDED
            and "recoveryTime" not in one
            and ("children" not in one or all(child["_id"] in finished for child in one["children"]))
            for one in outline.decisions
        )
    except (TypeError, KeyError):  # something else stands there, which the rules will tell
        return False


def at_rest(outline: Outline) -> bool:
    """Whether a process is finished and its records agree on that. Then no rule finds anything, whatever Task records
    it has.

    Narrow on purpose: every task is in the graph's finished ones and has a finished Decision without a deadline, and so
    has each child. Whatever else is healthy is for the rules to say.
    """
    finished = _finished(outline.process, outline.graphs)
    return finished is not None and _decided(outline, finished)
