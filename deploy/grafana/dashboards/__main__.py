"""`python -m deploy.grafana.dashboards [--docs URL] [--console URL]`: write the dashboards to deploy/grafana/json."""

from __future__ import annotations

import argparse
from pathlib import Path

from deploy.grafana.dashboards import BOARDS
from deploy.grafana.dashboards.build import encoded
from deploy.grafana.dashboards.model import Site

FOLDER = Path(__file__).parents[1] / "json"


def main() -> None:
    """Write each dashboard to a file with its uid as name."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.dashboards", description="Write the dashboards.")
    parser.add_argument("--docs", default="", help="address of these docs: panels link to their runbooks")
    parser.add_argument("--console", default="", help="address of the console: panels link to it")
    arguments = parser.parse_args()
    site = Site(arguments.docs.rstrip("/"), arguments.console.rstrip("/"))
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(encoded(board, site))


if __name__ == "__main__":
    main()
