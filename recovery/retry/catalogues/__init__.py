"""The shipped catalogues: errors of Python, MongoDB, Redis, HTTP, Couchbase, Hive's replication, and our own."""

from recovery.retry.catalogue import Catalogue, Catalogues
from recovery.retry.catalogues.hive_replication import HIVE_REPLICATION
from recovery.retry.catalogues.http import HTTP
from recovery.retry.catalogues.mongodb import MONGODB
from recovery.retry.catalogues.own import OWN
from recovery.retry.catalogues.python import PYTHON
from recovery.retry.catalogues.redis import REDIS

SHIPPED: tuple[Catalogue, ...] = (PYTHON, MONGODB, REDIS, HTTP, HIVE_REPLICATION, OWN)


def shipped() -> Catalogues:
    """Those of ours, for others to be added."""
    return Catalogues(list(SHIPPED))


__all__ = ["SHIPPED", "shipped"]
