"""Grafana's dashboards, built in Python: `make dashboards` writes them to deploy/grafana/json, which Grafana reads.

What a dashboard shows is plain data (`model`), one module for each: `cluster`, `recovery`, `processes`, `operations`.
`build` makes Grafana's own objects of it, and is the only module that knows its SDK.

Cardinality: every query is summed up by what there are few of (rules, reasons, states, scanners, steps), or takes the
ten largest (`topk`) of actors, process types, queues and operations. What is asked for scrapes is the same from every
worker, so its `max` is taken; what workers count is summed up.
"""

from deploy.grafana.dashboards import cluster, operations, processes, recovery
from deploy.grafana.dashboards.model import Board

BOARDS: tuple[Board, ...] = (cluster.BOARD, recovery.BOARD, processes.BOARD, operations.BOARD)
