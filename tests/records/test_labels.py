"""Labels are kept as `NAME=VALUE` in order; what can be no label is refused with what is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.errors import InputError
from recovery.records.search_names import (
    MAX_LABEL_LENGTH,
    MAX_LABELS,
    decode_labels,
    encode_labels,
    label_text,
    parse_labels,
)

WANTED = "a name has letters, digits, '_' and '-', at most 50, a letter first"


class Name(str):
    """A name of another type, which shows itself as something else."""

    def __str__(self) -> str:
        return "another"


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ({}, ()),
        ({"region": "eu=west", "customer": "acme"}, ("customer=acme", "region=eu=west")),
        ({Name("customer"): Name("acme")}, ("customer=acme",)),
        ({"a" * 50: "x" * MAX_LABEL_LENGTH}, (f"{'a' * 50}={'x' * MAX_LABEL_LENGTH}",)),
        ({"_a-1": " "}, ("_a-1= ",)),
    ],
    ids=["none", "in order", "other types", "longest", "signs"],
)
def test_labels_are_kept_as_sorted_texts(labels: dict[str, str], kept: tuple[str, ...]) -> None:
    assert encode_labels(labels) == kept
    assert all(type(label) is str for label in encode_labels(labels))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (5, "labels=5: must be a mapping, as {'customer': 'acme'}"),
        ([("a", "b")], "labels=[('a', 'b')]: must be a mapping, as {'customer': 'acme'}"),
        ({"": "x"}, f"label '': {WANTED}"),
        ({"1a": "x"}, f"label '1a': {WANTED}"),
        ({"a b": "x"}, f"label 'a b': {WANTED}"),
        ({"a" * 51: "x"}, f"label '{'a' * 51}': {WANTED}"),
        ({5: "x"}, f"label 5: {WANTED}"),
        ({Name("a b"): "x"}, f"label 'a b': {WANTED}"),
        ({"a": 5}, "label a=5: must be a text of 1 to 200 characters, not an int"),
        ({"a": ""}, "label a='': must be a text of 1 to 200 characters; it has 0"),
        ({Name("a"): None}, "label a=None: must be a text of 1 to 200 characters, not a NoneType"),
    ],
)
def test_what_can_be_no_label_is_refused(labels: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        encode_labels(labels)
    assert str(refused.value) == message


def test_a_process_has_at_most_20_labels() -> None:
    labels = {f"label{number}": "x" for number in range(MAX_LABELS)}
    assert len(encode_labels(labels)) == 20
    with pytest.raises(InputError) as refused:
        encode_labels({**labels, "more": "x"})
    assert str(refused.value) == "labels: 21 of them; a process has at most 20"


def test_a_value_has_at_most_200_characters() -> None:
    with pytest.raises(InputError, match=r"must be a text of 1 to 200 characters; it has 201$"):
        encode_labels({"a": "x" * 201})


def test_typed_labels_are_parsed_up_to_the_first_equals_sign() -> None:
    assert parse_labels(["customer=acme", "region=eu=west", "empty="]) == {
        "customer": "acme", "region": "eu=west", "empty": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["a=1", "customer"], "label 'customer': give it as NAME=VALUE, as in customer=acme"),
        (["a=1", "b=1", "a=2"], "label a: is given twice, '1' and '2'"),
    ],
)
def test_a_mistyped_label_is_refused(typed: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_labels(typed)
    assert str(refused.value) == message


def test_kept_labels_are_decoded_to_what_was_given() -> None:
    labels = {"customer": "acme", "region": "eu=west"}
    assert decode_labels(encode_labels(labels)) == labels
    assert encode_labels({"region": "eu=west"}) == (label_text("region", "eu=west"),)
