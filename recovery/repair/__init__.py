"""From findings to compare-and-sets. `Repairer` runs the engine's own steps again, in batches."""

from recovery.repair.diagnosis import Diagnosis, Reading, diagnose, judge, readings
from recovery.repair.repairer import Done, Repairer
from recovery.repair.surroundings import look_around, look_at_all

__all__ = ["Diagnosis", "Done", "Reading", "Repairer", "diagnose", "judge", "look_around", "look_at_all", "readings"]
