"""Effects of finished tasks: their graphs are updated, ready tasks are enqueued, and complete processes end.

outbox → apply → complete
           ├─ interrupt, listing     a task failed: its process breaks, and the task is listed as interrupted
           ├─ rebuild                the graph is missing or contradicts the decisions
           └─ reopen                 a restarted task is applied
"""
