"""The picture and the table of the default retry policy in docs/retry.md, made by the code.

`python -m tests.docs.policy` brings both up to date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from random import Random

from recovery.retry.policy import DEFAULT
from recovery.wording import show_age
from tests.docs.blocks import DOCS

PAGE, PICTURE = DOCS / "retry.md", DOCS / "retry-policy.svg"
MARKS = "<!-- the default policy -->", "<!-- end of the default policy -->"
SEED = 1
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 800, 320, 60, 30, 20, 50
HOURS, MINUTES = 24, 60
SHOWN = (1, 2, 3, 4, 5, 10, 15, 20, 22, 23, 24, 25)


def delays(seed: int = SEED) -> list[float]:
    """The delays of a cycle whose attempts take no time."""
    return list(DEFAULT.delays(Random(seed)))


def table() -> str:
    """When each retry comes, without jitter at the least and with all of it at the most."""
    least, most = DEFAULT.jitter
    bases = [DEFAULT.base(retry) for retry in range(max(SHOWN))]
    shortest = [min(DEFAULT.maximum, base + least) for base in bases]
    longest = [min(DEFAULT.maximum, base + most) for base in bases]
    rows = [
        f"| {retry} | {_span(shortest[retry - 1], longest[retry - 1])} | {_span(*_since(retry, shortest, longest))} |"
        for retry in SHOWN
    ]
    count = len(delays())
    head = ["| Retry | after the failure before it | after the first failure |", "| --- | --- | --- |"]
    end = f"| … up to {count} | {show_age(DEFAULT.maximum)} | the last one before {show_age(DEFAULT.total)} are over |"
    return "\n".join([*head, *rows, end])


def _since(retry: int, shortest: Sequence[float], longest: Sequence[float]) -> tuple[float, float]:
    return list(accumulate(shortest))[retry - 1], list(accumulate(longest))[retry - 1]


def _span(least: float, most: float) -> str:
    return _minutes(least) if least == most else f"{_minutes(least)} to {_minutes(most)}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def picture() -> str:
    """The delays of one cycle over its day, as SVG: each dot is a retry."""
    found = delays()
    dots = [(_x(at / 3600), _y(delay / 60)) for at, delay in zip(accumulate(found), found, strict=True)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    base, top = HEIGHT - BOTTOM, _y(DEFAULT.maximum / 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#444">',
        f"<title>The default policy: delays of {len(found)} retries over {HOURS} hours</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for hour in range(0, HOURS + 1, 3):
        parts.append(f'<path d="M{_x(hour):.1f} {TOP}V{base}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{_x(hour):.1f}" y="{base + 18}" text-anchor="middle">{hour}</text>')
    for minute in range(0, MINUTES + 1, 15):
        parts.append(f'<path d="M{LEFT} {_y(minute):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{_y(minute) + 4:.1f}" text-anchor="end">{minute}</text>')
    parts += [
        f'<path d="M{LEFT} {top:.1f}H{WIDTH - RIGHT}" stroke="#c33" stroke-dasharray="4 3"/>',
        f'<text x="{WIDTH - RIGHT}" y="{top - 8:.1f}" text-anchor="end" fill="#c33">maximum</text>',
        f'<polyline points="{line}" fill="none" stroke="#36c"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#36c"/>' for x, y in dots),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        "hours since the first failure</text>",
        f'<text x="14" y="{(TOP + base) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + base) / 2})">minutes of delay</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(hours: float) -> float:
    return LEFT + hours / HOURS * (WIDTH - LEFT - RIGHT)


def _y(minutes: float) -> float:
    return HEIGHT - BOTTOM - minutes / (MINUTES * 1.1) * (HEIGHT - BOTTOM - TOP)


def page(text: str) -> str:
    """The page with its table brought up to date."""
    begin, end = MARKS
    return re.sub(rf"{begin}\n.*?\n{end}", lambda _: f"{begin}\n\n{table()}\n\n{end}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    PICTURE.write_text(picture())
