"""A search is saved under a plain name; what can be no name is refused."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.errors import InputError
from recovery.records.search_names import search_name


class Name(str):
    """A name of another type, which shows itself as something else."""

    def __str__(self) -> str:
        return "another"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("stuck-orders", "stuck-orders"),
        ("@stuck-orders", "stuck-orders"),
        ("_a.1", "_a.1"),
        ("a" * 50, "a" * 50),
        (Name("@stuck"), "stuck"),
    ],
)
def test_a_name_is_taken_with_or_without_its_sign(given: str, name: str) -> None:
    assert search_name(given) == name
    assert type(search_name(given)) is str


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", "''"),
        ("@", "'@'"),
        ("@@stuck", "'@@stuck'"),
        ("1st", "'1st'"),
        ("stuck orders", "'stuck orders'"),
        ("stuck\n", "'stuck\\n'"),
        ("a" * 51, f"'{'a' * 51}'"),
        (None, "None"),
        (b"stuck", "b'stuck'"),
    ],
)
def test_what_can_be_no_name_is_refused(given: Any, shown: str) -> None:
    with pytest.raises(InputError) as refused:
        search_name(given)
    assert str(refused.value) == (
        f"name {shown}: the name of a search has letters, digits, '_', '.' and '-', at most 50, a letter first, "
        "as in stuck-orders"
    )
