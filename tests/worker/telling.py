"""An application whose actors log in all the ways that there are."""

from __future__ import annotations

import inspect
import logging
import traceback
from typing import Any

from celery.utils.log import get_task_logger

from recovery import Recovery

app = Recovery()


@app.actor()
def tell(text: str, _before: Any = None) -> str:
    logging.getLogger("somebodys.own").info("%s by logging", text)
    get_task_logger("somebodys.task").info("%s by Celery's logger", text)
    print(f"{text} by print")
    return text


@app.actor()
def refuse(reason: str) -> None:
    raise ValueError(reason)


@app.process()
def story() -> Any:
    return tell.schedule("second", tell.schedule("first"))


@app.process()
def refusal() -> Any:
    return refuse.schedule("not today")


@app.actor()
def tell_at_length() -> None:
    log = logging.getLogger("somebodys.own")
    log.info("two\nlines, \x1b[31mred", extra={"weight": 3, "of": {"kg"}, "ratio": float("nan")})
    try:
        raise ValueError("a cause\nof two lines")
    except ValueError:
        log.exception("it failed")


@app.process()
def long_story() -> Any:
    return tell_at_length.schedule()


@app.actor()
def print_stack() -> None:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        traceback.print_exc()


LINE = inspect.getsourcelines(print_stack.function)[1] + 3
"""In which it fails."""


@app.process()
def printed_stack() -> Any:
    return print_stack.schedule()
