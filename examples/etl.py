"""Extract, transform, load. Each source is separate, so a failing source does not block the others.

recovery up --app etl:app
recovery start load_day 2026-03-02 --app etl:app --wait 30
"""

from recovery import Failure, Recovery

app = Recovery()

SOURCES = {"north": ["3", "4"], "south": ["5", "x"], "west": None, "east": ["7"]}  # stands in for other systems
TRIES = 3


@app.actor()
def extract(day, source, attempt=1):
    """Ask a source for its rows. If the source does not answer, ask again later."""
    try:
        return ask(source, attempt)
    except ConnectionError:
        if attempt == TRIES:
            raise
        return extract.options(delay=attempt / 5, fallible=True).schedule(day, source, attempt + 1)


@app.actor()
def transform(source, rows):
    """Sum up the rows of a source. If `extract` failed, `rows` is a `Failure`, which is passed on."""
    return rows if isinstance(rows, Failure) else {"source": source, "sum": sum(int(row) for row in rows)}


@app.actor()
def load(day, parts):
    failed = [part for part in parts if isinstance(part, Failure)]
    return {
        "day": day,
        "loaded": {part["source"]: part["sum"] for part in parts if part not in failed},
        "failed": [f"{part.actor}: {part.kind}: {part.message}" for part in failed],
    }


@app.process()
def load_day(day):
    parts = []
    for source in SOURCES:
        rows = extract.options(fallible=True).schedule(day, source)
        parts.append(transform.options(fallible=True).schedule(source, rows))
    return load.schedule(day, parts)


def ask(source, attempt):
    if source == "east" and attempt < TRIES:
        raise ConnectionError("no answer")
    if SOURCES[source] is None:
        raise LookupError(f"{source} has no data")
    return SOURCES[source]
