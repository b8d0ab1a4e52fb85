"""The places that attempts run in: the `board` on which each tells what it runs, `pool_host` around the call,
`own_pool` with its processes' limits (`lifetime`) and signals (`own_signals`), and what is done about those that hang
(`hung`, `freeing`, `killing`).
"""
