"""A Spark whose pages are served, in which a sweep repairs and a question is asked in SQL. Ends with its input."""

from __future__ import annotations

import os
import sys

from pyspark import SparkContext
from pyspark.sql import SparkSession

from recovery.cli.main import execute
from recovery.settings import load
from recovery.sweep.session import configuration
from recovery.sweep.source import register


def main(port: str, *planted: str) -> None:
    """With options of Spark's that are planted: `spark.…=value`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = configuration(load(spark_master="local[2]"))
    conf.set("spark.ui.enabled", "true").set("spark.ui.port", port)
    for option in planted:
        conf.set(*option.split("=", 1))
    SparkContext(conf=conf)
    code = execute(["sweep", "--here", "--repair", "--json"])
    spark = register(SparkSession.builder.getOrCreate())
    frame = spark.read.format("recovery").option("table", "processes").option("uri", load().mongo_uri).load()
    frame.createOrReplaceTempView("processes")
    asked = spark.sql("SELECT state, count(*) AS processes FROM processes GROUP BY state")
    asked.explain("extended")
    asked.show()
    print(f"ready {code}", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
