"""What is deployed, thin: the Celery application and the entry for spark-submit. What they do stands in `recovery`.

Not in the wheel, so that a project of yours may have a `workers` of its own.
"""
