"""What comes out of Redis: `intake` decides what a text stands for, `transport` fits it into kombu, `queue_consumption`
knows which queues are consumed and which Redis answers, and `stale` discards what nobody waits for.
"""
