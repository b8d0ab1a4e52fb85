"""The places that attempts run in: the `board` on which each tells what it runs, `pool_host` around the call, and what
is done about those that hang (`hung`, `freeing`, `killing`).
"""
