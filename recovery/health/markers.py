"""Check of what is not started until an operator says so: markers, and process types that are disabled."""

from __future__ import annotations

from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, warning
from recovery.wording import count


def markers(resources: Resources) -> Check:
    """No marker is there, and no process type is disabled. Costs as many records as there are of both."""
    counts = resources.store.markers.counts()
    stored = resources.store.process_types.stored()
    disabled = [name for name, one in stored.items() if one.disabled is not None]
    if not counts and not disabled:
        return ok("markers", "none; no process type is disabled")
    of_types = [f"{name} ({number:,})" for name, number in counts.items()]
    total = sum(counts.values())
    told = [f"{count(total, 'marker')} of {join_names(of_types)}"] if counts else []
    told += [f"disabled: {join_names(disabled)}"] if disabled else []
    unasked = sorted(name for name in counts if name in stored and not stored[name].effective.markers)
    told += [f"not looked at, since markers=false: {join_names(unasked)}"] if unasked else []
    advice = ["`recovery marker list` tells why; clear each once that is seen to"] if counts else []
    advice += ["`recovery process-type show NAME` tells by whom and why"] if disabled else []
    return warning("markers", Cause.STARTS_REFUSED, f"not started: {'; '.join(told)}", "; ".join(advice))
