"""What `--json` prints, against the schemas that docs/commands.md lists.

Commands that print an operation have the same schema of it. Change that of `operation show`, then run

    python -m tests.cli.schemas      # writes it into those of the others
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.cli.command import ROOT

SCHEMAS = ROOT / "docs" / "schemas"

_formats = FormatChecker(())


@_formats.checks("date-time", raises=ValueError)
def _is_moment(value: object) -> bool:
    """ISO 8601 in UTC."""
    if not isinstance(value, str):
        return True
    moment = datetime.fromisoformat(value)
    return moment.tzinfo is not None and not moment.utcoffset()


def path(command: str) -> Path:
    return SCHEMAS / f"{command.replace(' ', '-')}.json"


def read(command: str, text: str) -> dict[str, Any]:
    """What a command printed, which is one line and valid; a key that its schema does not have is an error here."""
    assert text.count("\n") == 1 and text.endswith("\n"), text
    found: dict[str, Any] = json.loads(text)
    _validator(command).validate(found)
    return found


@cache
def _validator(command: str) -> Draft202012Validator:
    schema = json.loads(path(command).read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(_closed(schema), format_checker=_formats)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(one) for key, one in schema.items()}
    # `properties` may hold one of that name, which is no object schema.
    return {**closed, "additionalProperties": False} if isinstance(schema.get("required"), list) else closed


_OF_THE_COMMAND = ("command", "version", "sample")
"""What is not the operation's own in the schema of `operation show`."""
_ALWAYS_THERE = ("number", "kind", "state")
"""What is printed of an operation whose record is damaged, too; its schema requires the others by one of them."""


def operation_schemas() -> dict[Path, str]:
    """{page: its text, with what an operation is as `operation show` has it}."""
    model = json.loads(path("operation show").read_text())
    pages = [page for page in sorted(SCHEMAS.glob("operation-*.json")) if page != path("operation show")]
    return {page: _written(_with_operation(json.loads(page.read_text()), model)) for page in pages}


def _with_operation(schema: Any, model: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        is_of_fields = {"selection_in_words", "idle_timeout"} <= {one for one in schema if type(one) is str}
        own = [key for key in model["required"] if key not in (*_OF_THE_COMMAND, *_ALWAYS_THERE, *schema)]
        return [*schema, *own] if is_of_fields else [_with_operation(one, model) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _with_operation(one, model) for key, one in schema.items()}
    if {"number", "selection_in_words"} <= found.keys():
        found |= {key: one for key, one in model["properties"].items() if key not in _OF_THE_COMMAND}
    return found


def _written(schema: Any) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for page, text in operation_schemas().items():
        page.write_text(text)
