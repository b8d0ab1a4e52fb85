"""What is deployed, thin: the worker with its Celery application, and the one that drives Spark. All else: `recovery`.

Not in the wheel, so that a project of yours may have a `workers` of its own.
"""
