"""Queries and updates at the command of an operator or of a repair.

For processes: `command_records` has what is ordered, which `redos`, `restarts`, `aborts` and `process_removals` carry
out; `interruption_records` lists what is broken; `process_times` and `record_mending` set records right. For operations
on many processes: `operation_records`, their `operation_ranges` and `operation_results`.
"""
