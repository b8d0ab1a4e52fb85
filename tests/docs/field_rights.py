"""Who can write which field of which record, and what comes of it: the table of docs/field-rights.md.

    python -m tests.docs.field_rights      # writes it into docs/field-rights.md

The fields are those of the records, and who may write them is what `recovery.store.roles` says. What comes of it is
written here. A field that clients can change needs a word of its own; of records that clients can only add one word is
for all fields that are not named.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recovery.records import shapes_of
from recovery.store import definitions, roles, schema

PAGE = Path(__file__).parents[2] / "docs" / "field-rights.md"
MARK = "<!-- made by python -m tests.docs.field_rights -->"

_OWN = "Of what it starts itself it chooses this anyway."
_OTHERS = "Of another's process: "
_NEW = "Of a record that it adds under an id that is free: "
_SHOWN = "Is shown, and decides nothing."

OTHER = "any other"
"""Stands for each field of a collection that EFFECTS does not name. Only for records that clients can't change."""

EFFECTS: dict[str, dict[str, str]] = {
    schema.PROCESSES: {
        "_id": _OWN,
        "type": f"{_OTHERS}settings of another type hold for it, and its marker is that type's.",
        "args": f"{_OTHERS}its start runs with these, if it was not registered yet; else they are only shown.",
        "customId": f"{_OTHERS}who starts under that custom id gets this process.",
        "formerCustomId": _SHOWN,
        "replacedBy": f"{_OTHERS}it can't be done again; `result` tells of the other one.",
        "key": f"{_OTHERS}the marker that it leaves, if it breaks, is of this key.",
        "labels": f"{_OTHERS}searches find it by these, and so do operations that an operator orders by a search.",
        "startTask": f"{_OTHERS}its result is that task's value.",
        "state": f"{_OTHERS}it ends, or goes on: `aborted` has its tasks end, `running` has it looked at.",
        "epoch": f"{_OTHERS}what its tasks come to is not accepted until its records are of that epoch again "
        "(`EPOCH_WRONG`).",
        "reopened": f"{_OTHERS}that it breaks may be refused once.",
        "idleTimeout": f"{_OTHERS}it is looked at sooner or later.",
        "startedAt": f"{_OTHERS}its `process_timeout` counts from then.",
        "timedOutAt": f"{_OTHERS}its `process_timeout` is not counted.",
        "retry": f"{_OTHERS}its start task is tried again so, if it was not registered yet.",
        "context": f"{_OTHERS}strategies of its start task read this, if it was not registered yet.",
        "endedAt": f"{_OTHERS}collections by age take it sooner or later, if it is over.",
        "result": f"{_OTHERS}whoever asks for its result is told this.",
        "error": f"{_OTHERS}whoever asks is told this, and so is its marker.",
        "removing": "Nothing without an order: when the process is looked at, the mark is taken off (`ORDER_MISSING`).",
        "order": "Nothing without an order of that key, which clients can neither write nor read.",
        "importedEpoch": f"{_OTHERS}an import takes it for later, or earlier, than it is, and is refused, or "
        "replaces it.",
        "importedAs": "The same.",
        "redo": "Nothing is carried out without an order; the process waits for an operator (`ORDER_MISSING`).",
        "restartedAt": "As `startedAt`.",
        "lives": _SHOWN,
        "version": f"{_OTHERS}searches find it by this; its tasks are pinned to this, if it was not registered yet.",
        "pinned": f"{_OTHERS}its tasks run on workers of any version, or of one, if it was not registered yet.",
        "scheduledBy": f"{_OTHERS}it is aborted, if nothing of it was begun and that schedule does not know it.",
        "retriedBySchedule": f"{_OTHERS}it leaves no marker for a failure that may pass.",
        "markerDue": "Nothing without an order: no marker is written.",
        "trace": "Spans are told under another one.",
        "recoveryTime": f"{_OTHERS}it is looked at sooner or later; without one it is found (`DEADLINE_MISSING`).",
    },
    schema.TASKS: {
        "_id": f"{_NEW}it belongs to that process, and runs once its graph names it, which the client can't change.",
        OTHER: f"{_NEW}read once its decision is claimed.",
    },
    schema.DECISIONS: {
        "_id": f"{_NEW}it belongs to that process, which may be another's: the ids of tasks that are not there yet can "
        "be worked out. One of another form is told as damage, and never run.",
        "actor": f"{_NEW}that actor runs it, with any arguments, as of a process that the client starts.",
        "state": f"{_NEW}`queued` has it run; `finished` counts as done: its actor never runs, and its children are "
        "made, if its graph has it open.",
        "epoch": f"{_NEW}of another than its process it is not accepted.",
        "pass": f"{_NEW}whose message has it claimed.",
        "fresh": f"{_NEW}its process is looked for before it is queued again.",
        "outcome": f"{_NEW}a value for a task that has no decision yet, of another's process as well: whoever waits "
        "for it goes on with this, and the process's result may be another.",
        "children": f"{_NEW}they are made and run, if the graph has the task open.",
        "worker": f"{_NEW}it is taken for that worker's, and requeued when that is gone.",
        "recoveryTime": f"{_NEW}it is looked at then.",
        "pacedTo": f"{_NEW}it is not looked at sooner.",
        OTHER: f"{_NEW}as of a task that the client starts.",
    },
    schema.GRAPHS: {
        "_id": f"{_NEW}of a process whose start is not registered yet: its start does not begin, and a look mends it.",
        OTHER: f"{_NEW}the same; it is made again from the decisions where it contradicts them.",
    },
    schema.LEFT_COUNTS: dict.fromkeys(("_id", "at", "samples"), "Metrics count this; nothing is decided by it."),
}
CLOSED = (
    "Clients can't write it, and workers and operators do what is theirs. Whoever has their users can do all of it."
)


def table() -> str:
    """A row for each field that clients can write, and one for the fields of each collection that they can't."""
    rows = ["| Collection | Field | Client | Worker | Operator | What comes of it, by a client |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for collection, field, effect in fields():
        may = (_may(role, collection, field) for role in (roles.CLIENT, roles.WORKER, roles.OPERATOR))
        rows.append(f"| `{collection}` | {field} | {' | '.join(may)} | {effect} |")
    return "\n".join(rows)


def fields() -> Iterator[tuple[str, str, str]]:
    """(collection, field or fields, what comes of it). Raises KeyError for a field without a word."""
    for collection, kind in definitions.KINDS.items():
        names = list(shapes_of(kind))
        if roles.ROLES[roles.CLIENT].get(collection, frozenset()) & {"insert", "update", "remove"}:
            effects = EFFECTS[collection]
            named = [name for name in names if name in effects or OTHER not in effects]
            yield from ((collection, f"`{name}`", effects[name]) for name in named)
            if OTHER in effects:
                yield collection, OTHER, effects[OTHER]
        else:
            yield collection, ", ".join(f"`{name}`" for name in names), CLOSED


def _may(role: str, collection: str, field: str) -> str:
    rights = roles.ROLES[role].get(collection, frozenset()) - ({"update"} if field == "`_id`" else set())
    words = {"insert": "add", "update": "change", "remove": "remove"}
    return ", ".join(word for right, word in words.items() if right in rights) or "no"


def made(page: str) -> str:
    """The page with its table as it is to be."""
    return f"{page[: page.index(MARK)]}{MARK}\n\n{table()}\n"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
