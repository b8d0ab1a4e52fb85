"""An application that the tests of the command line start processes of."""

from __future__ import annotations

from recovery import Promise, Recovery

app = Recovery()
not_an_app = 3


@app.actor()
def double(number: int) -> int:
    return 2 * number


@app.actor()
def refuse(reason: str) -> None:
    raise ValueError(reason)


@app.process()
def twice(number: int) -> Promise:
    return double.schedule(double.schedule(number))


@app.process()
def echo(*values: object) -> list[object]:
    return list(values)


@app.process()
def many(count: int) -> list[Promise]:
    return [double.schedule(number) for number in range(count)]


@app.process()
def broken(reason: str) -> Promise:
    return refuse.schedule(reason)
