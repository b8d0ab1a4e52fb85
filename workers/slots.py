"""The places that attempts run in, as the engine sees them: processes or threads of a Celery pool."""

from __future__ import annotations

from billiard.common import terminate_handler_fired

from recovery.engine import Host


class PoolHost(Host):
    """A process of a worker."""

    def ends(self, error: BaseException) -> bool:
        """A process of a prefork pool that is told to end (SIGTERM from its parent) raises SystemExit in whatever it
        runs, which may turn into another error on its way."""
        return bool(terminate_handler_fired()) or super().ends(error)
