"""What is told, and what has consequences, when writes are taken back: a real replica set of three, whose secondaries
lag behind and whose primary is really killed.

That they lag is made on purpose: they answer and vote, and take nothing from the primary. So all that the primary has
from then on is gone with it.
"""
