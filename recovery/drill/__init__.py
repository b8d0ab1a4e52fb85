"""The drill: canary processes that go through a cluster as it is, and what they tell of recovery, in seconds, held
against what is promised.

`canary_actor` says what canaries are told and is the actor that obeys, served by every worker.
`readiness` looks who is there before anything is started, `flock` starts canaries, looks at their records and removes
them, `sightings` makes times of these records and derives from the settings what is promised, `drill_report` makes a
verdict of the times. `drilling` is a whole drill, and one after the other, with metrics.
"""
