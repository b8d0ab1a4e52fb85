"""The drill: canary processes that go through a cluster as it is, and what they tell of recovery, in seconds, held
against what is promised.

`orders` says what canaries are told and `canary` is the actor that obeys, served by every worker. `promises` derives
the promised times from the settings. `readiness` looks who is there before anything is started, `flock` starts
canaries, looks at their records and removes them, `sightings` makes times of these records, `report` a verdict of the
times. `run` is a whole drill, `probe` one after the other, with metrics.
"""
