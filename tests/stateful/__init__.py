"""Random processes on a random cluster with random faults, against what Python itself makes of the same programs.

`programs` are what processes do, `cluster` is who does it (workers, scanners and operators, on real servers, taking one
step at a time), `passing` moves time, `checks` holds the six invariants by queries of its own and `ends` what
all comes to, `machine` draws what happens. `soak` runs it for as long as asked.
"""
