"""What comes out of Redis: `intake` decides what a text stands for, `taking` and `transport` fit it into kombu, `polls`
knows which queues Redis answers, `queue_consumption` which are consumed, `stale` discards what nobody waits for, and
`outage` tells when Redis went and came back.
"""
