"""One range read in key order: which of its processes are plainly at rest, and outlines of the others.

Most of what a database holds is finished. For such a process a few comparisons of raw documents show that
no rule can have anything against it; building its records would take ten times as long. Nothing is held but
a page of each collection.

Task records, half of all, no rule asks for once a process is at rest. So they are counted, and read only of what is
not. Where a range has as many of them as that makes, none is of a process that is gone, unless as many are lacking.

Whoever goes through a range holds a lease on it, so he hears of each portion that was read, whatever it had in it: a
range that is healthy takes as long as any other.

The streams are not read at one moment. That does no harm: what is at rest stays so, and what seems
not to be is read again before anything is said of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from recovery.records import DecisionState, ProcessState
from recovery.records.ids import AFTER_SEPARATOR, SEPARATOR
from recovery.store import PORTION, PORTION_TASKS, schema
from recovery.store.briefs import children_of
from recovery.store.client import Document
from recovery.store.views.ranges import KEY, PAGE, Range, Ranges

MAX_ORPHANS = 1000
"""Of a range so many are told; there is one cause for them all, or two."""
READ_EACH = PAGE
"""Records after which who goes through a range hears of it: a tenth of a second's work."""
CUT_EACH = 20 * PAGE
"""Records that the server looks through for damage at once: a third of a second's work."""
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

    @property
    def weight(self) -> int:
        """How many tasks it holds, whichever of its records names the most."""
        return max(len(self.keys), sum(len(children_of(decision)) for decision in self.decisions))


class Stream:
    """The documents of one collection, handed out process by process, in the order of ids."""

    def __init__(self, source: Iterator[list[Document]]) -> None:
        self._source = source
        self._documents: list[Document] = []
        self._ids: list[str] = []
        self._at = 0
        self.passed_over: set[str] = set()
        """Processes whose records nobody asked for."""

    def take(self, process_id: str) -> tuple[list[str], list[Document]]:
        """Keys and documents of this process. Those before it, which nobody asked for, are passed over."""
        after = process_id + AFTER_SEPARATOR
        while (end := bisect_left(self._ids, after, self._at)) == len(self._ids) and self._turn():
            pass
        start = self._at
        if start < end and self._ids[start] < process_id:
            start = bisect_left(self._ids, process_id, start, end)
            self._pass_over(self._at, start)
        self._at = end
        return self._ids[start:end], self._documents[start:end]

    def pass_over_rest(self) -> Iterator[None]:
        """Pass over what is left, page by page."""
        self._pass_over(self._at, len(self._ids))
        self._at = len(self._ids)
        while self._turn():
            self._pass_over(0, len(self._ids))
            self._at = len(self._ids)
            yield

    def _pass_over(self, start: int, end: int) -> None:
        if len(self.passed_over) < MAX_ORPHANS:
            self.passed_over.update(key.partition(SEPARATOR)[0] for key in self._ids[start:end])

    def _turn(self) -> bool:
        """Add the next page to what is left of this one."""
        page = next(self._source, None)
        if page is None:
            return False
        self._documents = self._documents[self._at :] + page
        self._ids = self._ids[self._at :] + [document["_id"] for document in page]
        self._at = 0
        return True


def survey(
    stored: Ranges, part: Range, seen: RangeCounts, chosen: Container[str] | None = None
) -> Iterator[list[Outline]]:
    """Read a range, count what is `seen`, and outline what is not plainly at rest; of the chosen ones, if given.

    As many outlines at a time as may be held in memory at once; and none after each portion that was read meanwhile.
    """
    graphs, decisions = (Stream(stored.pages(name, part)) for name in (schema.GRAPHS, schema.DECISIONS))
    found, weight, read, told = list[Outline](), 0, 0, 0
    for page in stored.pages(schema.PROCESSES, part):
        for process in page:
            process_id = process["_id"]
            if read >= CUT_EACH * (len(seen.cuts) + 1):
                seen.cuts.append(process_id)
            read += 1
            if chosen is not None and process_id not in chosen:
                continue
            _, graph = graphs.take(process_id)
            keys, decided = decisions.take(process_id)
            read += len(keys)
            seen.processes += 1
            seen.decisions += len(keys)
            if _at_rest(process, graph, keys, decided):
                seen.tasks += len(keys)
            else:
                found.append(outline := Outline(process, graph, keys, decided))
                weight += outline.weight
            if len(found) == PORTION or weight > PORTION_TASKS:
                yield found
                found, weight = [], 0
            elif read >= told + READ_EACH:
                yield []
                told = read
        yield []
    if found:
        yield found
    if chosen is None:
        for stream in (graphs, decisions):
            for _ in stream.pass_over_rest():
                yield []
            seen.orphans |= stream.passed_over


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


def _at_rest(process: Document, graphs: Sequence[Document], keys: list[str], decisions: Sequence[Document]) -> bool:
    try:
        return at_rest(process, graphs, keys, decisions)
    except (TypeError, KeyError, AttributeError):  # something else stands there, which the rules will tell
        return False


def at_rest(process: Document, graphs: Sequence[Document], keys: list[str], decisions: Sequence[Document]) -> bool:
    """Whether a process is finished and its records agree on that. Then no rule finds anything, whatever Task records
    it has.

    `keys` are those of its decisions. Narrow on purpose: every task is in the graph's finished ones and has a finished
    Decision without a deadline, and so has each child. Whatever else is healthy is for the rules to say.
    """
    if process.get("state") != ENDED or len(graphs) != 1 or "removing" in process:
        return False
    graph = graphs[0]
    if graph.get("notFinished") or graph.get("failed") or "recoveryTime" in graph:
        return False
    finished, place = set(graph.get("finished", ())), len(process["_id"]) + len(SEPARATOR)
    if finished != {key[place:] for key in keys}:
        return False
    for decision in decisions:
        if decision.get("state") != DECIDED or "recoveryTime" in decision:
            return False
        if "children" in decision:
            for child in decision["children"]:
                if child["_id"] not in finished:
                    return False
    return True
