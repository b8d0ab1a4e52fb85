"""The life of a task, each step a function that may run twice, in two places, or stop half way.

    start → attempt → applier → apply → complete        what is handed on between them: `steps`
                                  ├─ interrupt, breaking, listing     a task failed: its process breaks, and is listed
                                  ├─ rebuild                          the graph is gone, or contradicts the decisions
                                  └─ reopen                           a restarted task is applied
    clearing takes deadlines off, results waits for the end

Repairs and operators' commands call the same functions.
"""
