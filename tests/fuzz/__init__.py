"""Inputs that nobody would write, by the thousand: nothing raises but our own errors, and nothing is shown that should
not be. A few seconds of each with every run of the tests, and `make soak` for the rest. `FUZZ_SEED=…` runs the inputs
of a run again."""
