"""Queries across records, for rules and for people. They change nothing of a process.

Whole processes are read by `snapshots`, by `ranges` for the sweep, and by `process_exports`. `search` finds processes
by what is asked for, and `process_lookup` finds and shows single ones. `overview` counts everything, `disk_use` bytes,
and `metric_counts` what metrics need. `pending` and `waiting_tasks` say what waits for whom, `scanner_queries` what is
overdue, `lifeline_queries` what a worker's parent process asks, and `server_state` how MongoDB itself is.
"""
