"""The cluster of tests/cluster: real workers, really killed."""

from __future__ import annotations

from tests.cluster.conftest import cluster as cluster
from tests.cluster.conftest import mongod as mongod
from tests.cluster.conftest import valkey as valkey
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
