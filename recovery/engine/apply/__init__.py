"""Effects of finished tasks reach their graphs: what is ready is enqueued, and a process of which nothing is open ends.

outbox → apply → complete
           ├─ interrupt, listing     a task failed: its process breaks, and is listed
           ├─ rebuild                the graph is gone, or contradicts the decisions
           └─ reopen                 a restarted task is applied
"""
