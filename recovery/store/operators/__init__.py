"""Queries and updates that operators' commands and repairs use.

Processes: `command_records` holds the orders that `redos`, `restarts`, `aborts` and `process_removals` carry out,
`interruption_records` lists why processes are broken, and `process_times` and `record_mending` correct records.
Operations on many processes: `operation_records`, their `operation_ranges` and `operation_results`.
"""
