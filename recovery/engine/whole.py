"""The end of a process of whose graph nothing is open, unless that graph is not whole.

Somebody else may have spoilt it: then it is complete, and lacks tasks. What they were to do would never be done, or
never be known. So what it has as finished is counted against the decisions before the process ends, which reads nothing
but an index; and where those are more, the process is looked at with the rules' own eyes.
"""

from __future__ import annotations

from collections.abc import Mapping

from recovery.engine.complete import finish_process
from recovery.engine.guarded import tell
from recovery.engine.rebuild import remake_graph
from recovery.engine.resources import Resources
from recovery.errors import DamagedRecord
from recovery.records import Outcome, ProcessState
from recovery.rules import is_intact


def finish_whole(
    resources: Resources,
    process_id: str,
    epoch: int,
    finished: int | None = None,
    known: Mapping[str, Outcome] | None = None,
) -> bool | None:
    """`finish_process`, if the graph has all tasks of the process as `finished`: so many, which are counted if not
    given. None if it has not: it is made anew and gone on from, or looked at soon."""
    store = resources.store
    if finished is None:
        finished = store.graphs.finished(process_id)
    if store.decisions.count(process_id) > finished and not _is_whole(resources, process_id):
        return None
    return finish_process(resources, process_id, epoch, known)


def _is_whole(resources: Resources, process_id: str) -> bool:
    """Whether a graph that seems to lack tasks lacks none: nobody has scheduled what is more. Else it is made anew."""
    (snapshot,) = resources.store.snapshots([process_id])
    if snapshot.process is None or snapshot.process.state is not ProcessState.RUNNING:
        return True  # it is not finished any more
    made = made_whole(resources, process_id) if is_intact(snapshot) else False
    if made is False:
        # When nobody has been at work on the graph for a while: only then absence is a finding.
        resources.store.graphs.hurry(process_id, 1.2 * resources.settings.apply_timeout)
    return made is None


def made_whole(resources: Resources, process_id: str) -> bool | None:
    """`remake_graph`; False as well where something of the process can't be read."""
    try:
        return remake_graph(resources, process_id)
    except DamagedRecord as damage:
        tell(process_id, damage)
        return False
