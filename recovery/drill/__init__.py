"""The drill: canary processes run through a live cluster, and their times of recovery are compared with promised times.

- `canary_actor` is the actor of canaries, which every worker serves.
- `readiness` checks the cluster before anything is started.
- `flock` starts canaries, reads their records and removes them.
- `sightings` derives promised times from the settings, and measured times from the records.
- `drill_report` compares both.
- `drilling` runs a whole drill, or one drill after the other with metrics.
"""
