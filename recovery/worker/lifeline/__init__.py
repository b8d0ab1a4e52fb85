"""That a worker lives, and what is known at once when one does not: `lifeline` beats, when `rhythm` says, `watch` keeps
an eye on MongoDB's clock and on other workers, `rescue` requeues what the dead had claimed.
"""
