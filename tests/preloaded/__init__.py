"""Workers and beats that begin with what they import already there.

A worker takes a second of a CPU to start, nearly all of it to import what it is made of, and the tests start hundreds.
`template` is a program that has imported it once, and is forked for each; what it forks is a process of its own, with
its own session, environment and streams, a child of whoever asked, and runs `python -m recovery worker` from its first
line. `process` asks for one where a `Child` would start another interpreter. What is started otherwise (the demo of
another terminal, containers' commands, a worker with a library of its own preloaded) is as users start it.
"""
