"""An order: its items are packed in parallel and shipped together, and later the buyer is asked for a review.

recovery up --app order:app
recovery start order '["ring", "book", "lamp"]' --app order:app --wait 30
"""

import time

from recovery import Recovery

app = Recovery()

REVIEW_AFTER = 2  # seconds; a timedelta(days=14) costs no more


@app.actor()
def pack(item):
    time.sleep(0.5)
    return {"item": item, "grams": 100 * len(item)}


@app.actor()
def ship(parcels):
    """Ship the parcels. Runs once, when all of them are packed."""
    return {"items": [parcel["item"] for parcel in parcels], "grams": sum(parcel["grams"] for parcel in parcels)}


@app.actor()
def ask_for_review(shipment):
    return f"asked for a review of {', '.join(shipment['items'])} ({shipment['grams']} g)"


@app.process()
def order(items):
    parcels = [pack.schedule(item) for item in items]
    shipment = ship.schedule(parcels)
    return ask_for_review.options(delay=REVIEW_AFTER).schedule(shipment)  # this long after the shipment
