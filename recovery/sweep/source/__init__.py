"""The records of processes as tables for Spark: `register(spark)`, then `spark.read.format("recovery")`.

`tables` has the columns, `pushdown` what MongoDB answers, `rows` what an executor reads, and `reader` is what Spark
knows of it.
"""

from recovery.sweep.source.reader import register

__all__ = ["register"]
