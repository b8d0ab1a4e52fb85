"""Queries across collections, for rules and for people. They do not change processes, except `process_imports`.

- `snapshots`, `ranges` (for the sweep) and `process_exports` read whole processes.
- `search` finds processes by a search text; `process_lookup` finds and shows single processes.
- `overview` counts all records, `disk_use` counts bytes, and `metric_counts` counts for metrics.
- `pending` and `waiting_tasks` show which tasks wait for a worker.
- `scanner_queries` finds overdue records, `lifeline_queries` serves a worker's parent process, and `server_state` shows
  the state of MongoDB itself.
"""
