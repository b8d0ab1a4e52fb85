"""The slots of a worker, in which attempts run.

- `board`: each slot writes here what it runs.
- `pools`: Celery's pools; `pool_process`: one process of a pool, with its limits and signals.
- `hung_slots`: finds hung slots and frees them, by `killing` their processes.
- `fitness`: slots that can run no task.
"""
