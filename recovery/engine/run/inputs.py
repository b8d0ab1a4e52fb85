"""What the tasks of a batch waited for, read for all of them at once: each by itself would take a round trip for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.engine.steps import ClaimedTask
from recovery.records.ids import record_id
from recovery.store import Store

log = logging.getLogger(__name__)


def with_outcomes(store: Store, round_: Sequence[ClaimedTask]) -> list[ClaimedTask]:
    """These, each with the outcomes of its dependencies, as a majority has them, as far as they are there and small:
    what is missing each reads by itself. Errors of servers are raised."""
    missing: dict[str, list[str]] = {}
    for here in round_:
        task = here.decision.task()
        if task is not None and (names := [name for name in task.deps if name not in here.outcomes]):
            missing[here.decision.id] = [record_id(task.process_id, name) for name in names]
    if len(missing) < 2:
        return list(round_)
    try:
        found = store.decisions.known_outcomes(list({key: None for some in missing.values() for key in some}))
    except Exception as error:
        if is_of_servers(error):
            raise
        log.debug("what %d tasks waited for is not read together (%s)", len(missing), in_a_line(error))
        return list(round_)
    return [here.knowing(found, missing.get(here.decision.id, ())) for here in round_]
