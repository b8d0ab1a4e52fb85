"""The signs of life of a worker, and the quick rescue of tasks when a worker or a process dies.

- `lifeline` writes heartbeats.
- `judging` watches MongoDB's clock and other workers.
- `served_queues` reports the state of the queues that the worker serves.
- `rescue` requeues the tasks of dead workers and processes.
"""
