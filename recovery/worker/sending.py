"""What beat sends is signed as well, if there is a key: workers take no other nudges and sweeps then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery.queue import Signer
from recovery.queue.envelope import sweep_terms
from recovery.queue.signing import HEADER
from recovery.worker.celery_config import NUDGE, SWEEP


def sign(signer: Signer) -> Callable[..., None]:
    """What to do before a message is sent by Celery. For the signal `before_task_publish`."""

    def add_signature(sender: str, body: Any, headers: dict[str, Any], **_: Any) -> None:
        if signer.signs and sender in (NUDGE, SWEEP):
            asked = [body[1].get(name) for name in ("repair", "every")]
            rest = sweep_terms(headers["expires"], *asked) if sender == SWEEP else ""
            headers[HEADER] = signer.sign(sender, headers["id"], rest)

    return add_signature
