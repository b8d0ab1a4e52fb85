"""When process types are started by themselves: pure functions from a Schedule record and the time to what is to be
done. No driver, and no clock but the one that is handed in.

`grid` is the slots of a crontab or an interval, daylight saving included; `walls` finds the moments of wall times;
`given` checks what code and operators say; `damage` finds plans in records that nobody can work with; `judge` decides
on one slot, `across` on what the end of an instance means, `states` makes the changes that operators and deployments
ask for. What is decided is written by the engine (`engine.start.occurrences`), by compare-and-set.
"""

from recovery.schedule.damage import check_sound, damage_of, is_call
from recovery.schedule.given import assignments, check, plan_names, plan_of
from recovery.schedule.grid import Crontab, Grid, Interval, grid_of, slots_from
from recovery.schedule.judge import Decided, Instance, decide, enabled, is_next_slot_impossible, settle
from recovery.schedule.states import instance_id, knows, moment_text

__all__ = [
    "Crontab",
    "Decided",
    "Grid",
    "Instance",
    "Interval",
    "assignments",
    "check",
    "check_sound",
    "damage_of",
    "decide",
    "enabled",
    "grid_of",
    "instance_id",
    "is_call",
    "is_next_slot_impossible",
    "knows",
    "moment_text",
    "plan_names",
    "plan_of",
    "settle",
    "slots_from",
]
