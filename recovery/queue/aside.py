"""What somebody put in the place of a queue of ours is set aside: with it no poll is answered, of any queue, or no
worker starts. It is somebody's, so nothing of it is lost."""

from __future__ import annotations

import secrets
from typing import Any

from redis.exceptions import WatchError

ASIDE = "not-a-queue"
"""In the name that is given to what stood in the place of a queue of ours, and in front of something random."""


def set_aside(client: Any, key: str, name: str, wanted: str) -> tuple[str, str] | None:
    """Rename what stands at `key`, unless it has the type that it should have: that type, and what it is called now,
    which begins with `name`. `client` is one of redis-py's, whose errors are raised. None: it is well, or was changed
    meanwhile."""
    with client.pipeline() as pipeline:
        pipeline.watch(key)  # else a queue that took its place just now could be what is renamed
        kind = pipeline.type(key)
        kind = kind.decode() if isinstance(kind, bytes) else kind
        if kind in ("none", wanted):
            return None
        aside = f"{name}.{ASIDE}.{secrets.token_hex(8)}"
        pipeline.multi()
        pipeline.renamenx(key, aside)
        try:
            pipeline.execute()
        except WatchError:
            return None
    return kind, aside
