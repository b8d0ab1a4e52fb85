"""The language for searching and selecting processes: `type:order not (error:OSError or idle:longer(1h))`.

Pure: `parse` returns a checked tree of terms; `store.views.search` translates it to queries of MongoDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.search.fields import FIELDS, Field, FieldKind
    from recovery.search.language import Saved, has_signed_ages, parse, quoted, rewritten, stored_in_words
    from recovery.search.query import All, And, Node, Not, Or, Query, Term, in_words

__all__ = [
    "FIELDS", "All", "And", "Field", "FieldKind", "Node", "Not", "Or", "Query", "Saved", "Term", "has_signed_ages",
    "in_words", "parse", "quoted", "rewritten", "stored_in_words",
]  # fmt: skip

__getattr__ = exported(
    __name__,
    {
        "fields": "FIELDS Field FieldKind",
        "language": "Saved has_signed_ages parse quoted rewritten stored_in_words",
        "query": "All And Node Not Or Query Term in_words",
    },
)
