"""What `--json` prints, against the schemas that docs/commands.md lists."""

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
