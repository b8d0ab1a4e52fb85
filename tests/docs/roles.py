"""MongoDB's roles for people to read and to run: a table of docs/servers.md, and deploy/mongodb/roles.js.

Both are made from `recovery.store.roles`, which `recovery init --roles` and `recovery doctor` go by, and written by
`python -m tests.docs.reference`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from recovery.store import roles

SCRIPT = Path(__file__).parents[2] / "deploy" / "mongodb" / "roles.js"

_HEAD = """\
// Roles for MongoDB's users, as `recovery init --roles` makes them: for whoever gives no administrator's password to
// another program.
//
//     mongosh "mongodb://admin@HOST/?replicaSet=rs0&authSource=admin" roles.js
//
// The database is `recovery`, or what RECOVERY_DATABASE names. May be run again: it brings the roles up to date.
// Made by `python -m tests.docs.reference`; change recovery/store/roles.py instead.

const name = process.env.RECOVERY_DATABASE || 'recovery';
const roles = """
_TAIL = """;

const database = db.getSiblingDB(name);
for (const [role, rights] of roles) {
  const privileges = rights.map(({ collection, actions }) => ({ resource: { db: name, collection }, actions }));
  if (database.getRole(role)) {
    database.updateRole(role, { privileges, roles: [] });
  } else {
    database.createRole({ role, privileges, roles: [] });
  }
  print(`${name}.${role}`);
}
"""


def script() -> str:
    """The script for mongosh."""
    lines = list[str]()
    for role, rights in roles.definitions():
        lines += [f"  [{json.dumps(role)}, [", *(f"    {json.dumps(one)}," for one in rights), "  ]],"]
    return "\n".join([f"{_HEAD}[", *lines, f"]{_TAIL}"])


def table() -> str:
    """What each role may do, those collections together with which it may do the same."""
    rows = ["| Role | May |", "| --- | --- |"]
    for role, rights in roles.ROLES.items():
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for collection, actions in rights.items():
            alike[tuple(sorted(actions))].append(f"`{collection}`" if collection else "the database")
        told = "; ".join(f"{', '.join(actions)}: {', '.join(names)}" for actions, names in alike.items())
        rows.append(f"| `{role}` | {told} |")
    return "\n".join(rows)
