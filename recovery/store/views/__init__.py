"""Queries across records, for rules and for people: `snapshots` of whole processes, `ranges` of them for the sweep, how
much there is (`overview`), what waits for whom (`pending`, `waiting`), and what is wrong with it (`damaged`, `hung`,
`unreachable_deadlines`, `scanners`, `condition`). They change nothing of a process.
"""
