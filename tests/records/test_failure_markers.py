"""A marker is named by its process type and key, and the name comes apart again."""

from __future__ import annotations

import pytest

from recovery.records import marker_name, split_marker_name


@pytest.mark.parametrize(
    ("process_type", "key", "name"),
    [
        ("order", None, "order"),
        ("order", "acme", "order/acme"),
        ("order", "eu/west", "order/eu/west"),
        ("order", "", "order/"),
    ],
)
def test_a_marker_is_named_by_its_type_and_key(process_type: str, key: str | None, name: str) -> None:
    assert marker_name(process_type, key) == name
    assert split_marker_name(name) == (process_type, key)
