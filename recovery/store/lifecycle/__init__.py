"""Queries and updates on the way of a task, collection by collection: `processes`, `tasks`, `graphs`, `decisions` with
the `requeues` of many at once; what workers tell of themselves (`workers`), and the settings that all of them go by
(`actors`, `preferences`).
"""
