"""The language in which processes are searched and selected: `type:order state:broken not (error:OSError or idle:>1h)`.

Pure: `parse` gives a tree of terms, checked; what they mean to MongoDB stands in `store.views.search`.
"""

from recovery.search.fields import FIELDS, Field, Kind
from recovery.search.language import Saved, parse, quoted
from recovery.search.tree import All, And, Node, Not, Or, Query, Term

__all__ = ["FIELDS", "All", "And", "Field", "Kind", "Node", "Not", "Or", "Query", "Saved", "Term", "parse", "quoted"]
