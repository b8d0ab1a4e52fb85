"""Read one range in key order: skip processes that are plainly at rest, and outline the others.

Most processes in a database are finished. A few comparisons of raw documents show that no rule can find anything on
such a process, which is ten times as fast as building its records. Memory holds one page per collection, some hundred
outlines, and the byte patterns of decisions at rest (`Forms`).

Task records of processes at rest are not read but counted, because no rule needs them. If a range has the expected
number of Task records, none belongs to a removed process, unless the same number is missing.

The caller holds a lease on the range, so it gets control after each portion that was read, even if nothing was found.

The collections are not read at one moment. This is safe because records at rest stay at rest, and other processes are
read again before anything is reported.
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
"""Number of records after which the caller gets control: about 0.1 s of work."""
CUT_EACH = 20 * PAGE
"""Number of records that the server examines for damage at once: about 0.3 s of work."""
TOGETHER = 400
"""Maximum number of outlines judged at once. Each batch takes five round trips."""
TOGETHER_BYTES = 2_000_000
"""Maximum bytes of decisions, as stored, and of graphs (estimated) of a batch of outlines. Decoded, they take ten
times as much memory."""
ENDED, DECIDED = ProcessState.FINISHED.value, DecisionState.FINISHED.value


@dataclass(slots=True)
class RangeCounts:
    """Counts of the records that were read."""

    processes: int = 0
    decisions: int = 0
    tasks: int = 0
    """Task records. For processes at rest, the number of decisions, because they are not read; for the others, the
    number that `examine` read."""
    orphans: set[str] = field(default_factory=set)
    """Ids of processes that have records but no Process record in this range, at most about MAX_ORPHANS per
    collection. Whether the process exists is checked later."""
    cuts: list[str] = field(default_factory=list)
    """Process ids with about `CUT_EACH` records between them."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The documents of a process that is not plainly at rest, with the fields in `BRIEF`."""

    process: Document
    graphs: list[Document]
    keys: list[str]
    """Keys of its decisions."""
    decisions: list[Document]


def survey(
    stored: Ranges, part: Range, seen: RangeCounts, chosen: Container[str] | None = None
) -> Iterator[list[Outline]]:
    """Read a range, count in `seen` what is read, and yield outlines of processes that are not plainly at rest.

    Yields at most as many outlines as fit into memory, and an empty list after each portion without outlines.

    Args:
        stored: The source of pages.
        part: The range.
        seen: The counts to update.
        chosen: Only these processes, if given.
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
    """Reads graphs and decisions of a range, process by process, and counts them.

    Collects outlines of processes that are not plainly at rest.
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
        count = _skip_known(self._decisions, key, self._forms.of(finished)) if finished is not None else None
        if count is None:
            count = self._decode(process, graphs, finished, key)
        else:
            seen.tasks += count
        seen.processes += 1
        seen.decisions += count
        return count

    def _decode(self, process: Document, graphs: list[Document], finished: frozenset[str] | None, key: bytes) -> int:
        """Decode the decisions of a process whose form is unknown. Return their number.

        Remembers the form if the process is at rest; otherwise adds an outline.
        """
        records = self._decisions.take(key)
        decisions = self._stored.decoded(records)
        process, graphs, count = aware(process), [*map(aware, graphs)], len(decisions)
        outline = Outline(process, graphs, [decision["_id"] for decision in decisions], decisions)
        if finished is not None and _decisions_agree(outline, finished):
            self._forms.learn(finished, key, records, count)
            self._seen.tasks += count
        else:
            self.outlines.append(outline)
            self._outline_bytes += len(records) + TASK_BYTES * weight(schema.GRAPHS, graphs)
        return count

    @property
    def is_full(self) -> bool:
        """Whether there are as many outlines as fit into memory."""
        return len(self.outlines) == TOGETHER or self._outline_bytes > TOGETHER_BYTES

    def take(self) -> list[Outline]:
        """Return the collected outlines and begin a new list."""
        outlines, self.outlines, self._outline_bytes = self.outlines, [], 0
        return outlines

    def pass_over_rest(self) -> Iterator[None]:
        """Read the remaining graphs and decisions, page by page.

        They belong to no process, so the ids of their processes become orphans.
        """
        for stream in (self._graphs, self._decisions):
            yield from stream.pass_over_rest()
            self._seen.orphans |= stream.passed_over


def _skip_known(decisions: RawStream, process_id: bytes, forms: Iterable[RecordForm]) -> int | None:
    """Skip the decisions of a process if they have one of these forms. Return their number; None if no form matches."""
    for form in forms:
        if decisions.comes(process_id, form.of(process_id)):
            return form.count
    return None


def look_for_tasks(stored: Ranges, part: Range, seen: RangeCounts, *, thorough: bool) -> Iterator[None]:
    """Find processes of which only Task records are left, and add them to the orphans. Yields after each page.

    Skipped if the range has as many Task records as were seen, unless `thorough`. The range must have been read
    completely.
    """
    if thorough or stored.how_many_tasks(part) != seen.tasks:
        yield from _look_for(stored, part, (schema.TASKS,), seen.orphans)


def without_process(stored: Ranges, part: Range, names: Sequence[str] = schema.OF_PROCESSES[1:]) -> set[str]:
    """Return ids with records in these collections but without a Process record.

    Reads keys only. Returns at most about MAX_ORPHANS ids per collection.
    """
    process_ids = set[str]()
    for _ in _look_for(stored, part, names, process_ids):
        pass
    return process_ids


def _look_for(stored: Ranges, part: Range, names: Sequence[str], process_ids: set[str]) -> Iterator[None]:
    streams = [Stream(stored.pages(name, part, KEY)) for name in names]
    for page in stored.pages(schema.PROCESSES, part, KEY):
        for process in page:
            for stream in streams:
                stream.take(process["_id"])
        yield
    for stream in streams:
        yield from stream.pass_over_rest()
        process_ids |= stream.passed_over


def _finished(process: Document, graphs: Sequence[Document]) -> frozenset[str] | None:
    """Return the task names of a process that is finished by its own record and its graph.

    None if the process is not finished or if a value is damaged, which the rules will report.
    """
    if process.get("state") != ENDED or len(graphs) != 1 or "removing" in process:
        return None
    graph = graphs[0]
    if graph.get("notFinished") or graph.get("failed") or "recoveryTime" in graph:
        return None
    try:
        return frozenset(graph.get("finished", ()))
    except TypeError:
        return None


def _decisions_agree(outline: Outline, finished: frozenset[str]) -> bool:
    """Return whether the decisions agree with the graph that all tasks are finished."""
    task_start = len(outline.process["_id"]) + len(SEPARATOR)
    if finished != {key[task_start:] for key in outline.keys}:
        return False
    try:
        return all(
            decision.get("state") == DECIDED
            and "recoveryTime" not in decision
            and ("children" not in decision or all(child["_id"] in finished for child in decision["children"]))
            for decision in outline.decisions
        )
    except (TypeError, KeyError):  # a damaged value, which the rules will report
        return False


def at_rest(outline: Outline) -> bool:
    """Return whether a process is finished and its records agree on that.

    No rule finds anything on such a process, whatever its Task records. The condition is deliberately narrow: every
    task is finished in the graph and has a finished decision without a deadline, and so do all children. Other healthy
    processes are left to the rules.
    """
    finished = _finished(outline.process, outline.graphs)
    return finished is not None and _decisions_agree(outline, finished)
