"""The places that attempts run in: the `board` on which each slot writes what it runs, Celery's `pools` and each
`pool_process` with its limits and signals, `hung_slots` and how they are freed (`killing`), and slots that can run no
task (`fitness`).
"""
