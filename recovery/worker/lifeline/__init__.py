"""That a worker lives, and what is known at once when one does not: `lifeline` beats, `judging` watches MongoDB's clock
and other workers, `served_queues` tells of queues, `rescue` requeues what the dead had claimed.
"""
