"""A cluster of seven hosts whose network is really cut: three mongods, Redis, two workers (one with a beat) and a
client, each in a network namespace of its own. Nothing may be lost, accepted twice or changed, whatever is cut from
what, and `recovery doctor` must name the cause.
"""
