"""The same application in a newer version, as somebody has it who did not yet restart the workers."""

from __future__ import annotations

from tests.cluster.app import app as app


@app.process()
def price_list(sizes: list[int]) -> list[int]:
    return [10 * size for size in sizes]
