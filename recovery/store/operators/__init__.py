"""Updates at the command of an operator or of a repair: `restarts`, `aborts`, the list of what is broken
(`interruptions`), times and epochs that are set right (`setting`), damaged records (`mending`).
"""
