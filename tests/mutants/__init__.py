"""Mutation tests of the pure packages: how many changed programs their fast tests notice.

mutmut changes one thing at a time in `records`, `rules`, `retry`, `schedule` and `search`, and runs the tests of these
packages that take no server. Of what it tried:

- a mutant is *killed* if a test fails or never ends;
- it is *stillborn* if mypy refuses it, as `make check` would, and then it counts as neither;
- it is *equivalent* if it does what the program does: `equivalent.toml` lists those, each with its reason;
- every other one survived, and wants a test.

The score of a package is its killed mutants, of those that are killed or survived. `make mutants` fails below BAR.
"""
