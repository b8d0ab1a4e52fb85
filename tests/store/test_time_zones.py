"""What is read without zones and given them afterwards is what pymongo would have read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
from bson.codec_options import CodecOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.store.raw_pages import aware

TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), TIMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4)


def has_naive(value: Any) -> bool:
    """Whether a time without a zone is left anywhere in it."""
    if isinstance(value, datetime):
        return value.tzinfo is None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(has_naive, inner))


@settings(max_examples=300, deadline=None)
@given(document=DOCUMENTS)
def test_times_get_their_zone_wherever_they_stand(document: dict[str, Any]) -> None:
    stored = bson.encode(document)
    read = aware(bson.decode(stored))
    # Aware and naive times are unequal, so that both comparisons would tell of one that was left out.
    assert read == bson.decode(stored, CodecOptions(tz_aware=True))
    assert not has_naive(read)
