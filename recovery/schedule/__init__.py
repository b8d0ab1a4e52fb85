"""When process types are started by themselves: pure functions from a Schedule record and the time to what is to be
done. No driver, and no clock but the one that is handed in.

`grid` makes the slots of a crontab or an interval, daylight saving included. `plan_checks` checks what code and
operators ask for; `plan_damage` finds plans in records that cannot be used. `judge` decides on one slot, `across` what
the end of an instance means for the next ones. `changes` applies what operators and deployments ask for. The engine
writes what is decided (`engine.start.occurrences`), by compare-and-set.
"""

from recovery.schedule.changes import instance_id, knows, moment_text
from recovery.schedule.grid import Crontab, Grid, Interval, grid_of, slots_from
from recovery.schedule.judge import Decided, Instance, decide, enabled, is_next_slot_impossible, settle
from recovery.schedule.plan_checks import assignments, check, plan_names, plan_of
from recovery.schedule.plan_damage import check_sound, damage_of, is_call

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
