"""A cluster on this machine whose workers are killed while you watch, and the proof that nothing was lost.

`app` runs workflows from WfFormat files as processes. Its actors write a ledger (`ledger`) of what they did and
what they saw, and `audit` tells from the ledger alone what was lost or accepted twice: our own counters might
have the very mistake that is looked for. `watching` looks at the processes from outside, `workforce` has the workers,
and kills them (`options` says when and which), `trouble` and `faults` break all else, `disaster` destroys records,
`screen` shows it, `demo_report` judges, `run` puts it together.
"""
