"""The records of processes as tables for Spark: `register(spark)`, then `spark.read.format("recovery")`.

The columns are those of `recovery.store.views.tables`; `pushdown` is what MongoDB answers, `rows` what an executor
reads, and `reader` what Spark knows of it.
"""

from recovery.sweep.source.reader import register

__all__ = ["register"]
