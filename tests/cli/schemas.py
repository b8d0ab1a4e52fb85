"""What `--json` prints, against the schemas that docs/commands.md lists.

Commands that print an operation refer to its schema in `operation show`. After a change of its fields run

    python -m tests.cli.schemas      # writes references to them into the schemas of the others
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry
from referencing.jsonschema import DRAFT202012

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
    return Draft202012Validator(_schema(path(command)), format_checker=_formats, registry=_registry())


@cache
def _registry() -> Registry[Any]:
    model = path("operation show")
    registry: Registry[Any] = Registry().with_resource(model.name, DRAFT202012.create_resource(_schema(model)))
    return registry


def _schema(page: Path) -> Any:
    schema = json.loads(page.read_text())
    Draft202012Validator.check_schema(schema)
    return _closed(schema)


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
    """{page: its text, which refers to `operation show` for each field of an operation}."""
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
        home = f"{path('operation show').name}#/properties"
        found |= {key: {"$ref": f"{home}/{key}"} for key in model["properties"] if key not in _OF_THE_COMMAND}
    return found


def _written(schema: Any) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for page, text in operation_schemas().items():
        page.write_text(text)
