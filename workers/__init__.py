"""The thin programs that are deployed: the worker with its Celery application, and the worker that drives Spark.
Everything else is in `recovery`.

This package is not in the wheel, so that a project of yours may have a package named `workers`.
"""
