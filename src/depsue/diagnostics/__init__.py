"""Diagnostics: are the logged propensities true, and does pi0 still earn what it did?"""

from depsue.diagnostics.drift import (
    FEWEST_TO_TEST_DRIFT,
    Change,
    DriftReport,
    DriftSide,
    change_between,
    check_drift,
    require_no_drift,
)
from depsue.diagnostics.propensities import (
    PropensityReport,
    check_propensities,
    require_propensities,
)

__all__ = [
    "Change",
    "DriftReport",
    "DriftSide",
    "FEWEST_TO_TEST_DRIFT",
    "PropensityReport",
    "change_between",
    "check_drift",
    "check_propensities",
    "require_no_drift",
    "require_propensities",
]
