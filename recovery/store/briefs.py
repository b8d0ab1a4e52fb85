"""Records read without their texts: values and arguments may be large, and no rule needs them."""

from __future__ import annotations

from recovery.errors import DamagedRecord
from recovery.records import Decision, DecisionState, Process, from_document
from recovery.store.client import Document

_UNASKED = (
    *("outcome.value", "outcome.error.stack", "call", "attempts", "claimedAt"),
    *("children.args", "children.deps", "children.dependents", "children.unlocks"),
)
DECISION_FIELDS = dict.fromkeys(_UNASKED, False)
PROCESS_FIELDS = {"args": False, "result": False}
LEFT_OUT = ""
"""Stands for arguments that were not read: the records require them."""


def process_of(document: Document) -> Process:
    """The process of a document that was read with `PROCESS_FIELDS`."""
    return from_document(Process, document | {"args": LEFT_OUT})


def decision_of(document: Document) -> Decision:
    """The decision of a document that was read with `DECISION_FIELDS`."""
    for child in children_of(document):
        child["args"] = LEFT_OUT
    decision = from_document(Decision, document)
    if decision.state is DecisionState.FINISHED and decision.outcome is None:
        raise without_outcome(decision.id)
    if decision.state is not DecisionState.FINISHED and decision.outcome is not None:
        told = f"Decision {decision.id}: its state is {decision.state}, and it has an outcome"
        raise DamagedRecord(decision.id, told, ("state",), Decision.__name__)
    return decision


def without_outcome(key: str) -> DamagedRecord:
    """A decision that is finished, and nobody knows with what."""
    return DamagedRecord(key, f"Decision {key}: it is finished, and has no outcome", ("outcome",), Decision.__name__)


def children_of(document: Document) -> list[Document]:
    """The children of a decision's document; none where there is something else, which can't be read."""
    found = document.get("children")
    return [child for child in found if isinstance(child, dict)] if isinstance(found, list) else []
