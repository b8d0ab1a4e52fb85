"""Schedules: when processes and operations start by themselves. Pure functions of a Schedule record and the given time.

`grid` computes the slots (the planned times) of a crontab or an interval, with daylight saving time. `plan_checks`
checks the plans of code and operators, and `plan_damage` finds unusable plans in records. `judge` decides what happens
to one slot, and `across` what the end of an instance means for later instances. `changes` applies the changes of
operators and deployments. The engine writes the results by compare-and-set (`engine.start.occurrences`).
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
