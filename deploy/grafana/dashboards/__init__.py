"""Grafana's dashboards, built in Python. `make dashboards` writes them to deploy/grafana/json, which Grafana reads.

The content of dashboards is plain data (`model`), in one module for each: `cluster`, `recovery`, `processes`,
`operations`. `build` makes Grafana's own objects from it, and is the only module that uses Grafana's SDK.

Cardinality: every query is summed up by labels with few values (rules, reasons, states, scanners, steps), or takes the
ten largest (`topk`) of actors, process types, queues and operations. Values that are read at a scrape are the same from
every worker, so queries take their `max`. Values that workers count are summed up.
"""

from deploy.grafana.dashboards import cluster, operations, processes, recovery
from deploy.grafana.dashboards.model import Board

BOARDS: tuple[Board, ...] = (cluster.BOARD, recovery.BOARD, processes.BOARD, operations.BOARD)
