"""Messages from Redis, as a worker takes them.

- `intake` checks texts and makes messages of them.
- `transport` connects the intake to kombu.
- `queue_consumption` knows which queues are consumed, and which of them Redis answers.
- `stale` discards stale messages in bulk.
"""
