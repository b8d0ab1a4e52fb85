"""The Celery application, for `celery -A workers.app worker` and `celery -A workers.app beat`.

From this folder's parent. Where the library is installed, `celery -A recovery.worker.app` is the same, from any folder.
"""

from recovery.worker.app import app

__all__ = ["app"]
