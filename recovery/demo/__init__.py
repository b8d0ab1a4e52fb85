"""The demo: a cluster on this machine whose workers are killed while you watch, and the proof that nothing was lost.

`app` runs workflows from WfFormat files as processes. Its actors record in a ledger (`ledger`) what they did and saw.
`audit` finds lost and doubly accepted results from the ledger alone, because the library's own counters might have the
very bug that the demo searches for.

- `options` are the demo's options, and choose when and whom to kill.
- `watching` observes the processes from outside.
- `workforce` starts and kills workers. `trouble` and `faults` break everything else. `disaster` destroys records.
- `screen` shows the demo, `demo_report` judges it, and `run` combines all parts.
"""
