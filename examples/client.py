"""A program that starts an order and waits for it, as a web handler or a cron job would.

    python client.py 4711 ring book

If it is run again, for example after an interruption, it finds the same order by its number.
"""

import sys

from order import app, order

from recovery import CustomIdTaken, ProcessBroken, ResultTimeout


def main(number, items):
    try:
        process_id = app.start(order, items, custom_id=number)
    except CustomIdTaken:
        return f"order {number} already exists with other items"
    while True:
        try:
            print(app.result(process_id, timeout=10))
            return None
        except ResultTimeout:
            print(f"order {number} is still running as process {process_id}")
        except ProcessBroken as error:
            return f"order {number} failed: {error}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
