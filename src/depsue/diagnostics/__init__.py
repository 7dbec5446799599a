"""Diagnostics: propensities, drift, and whether what a unit is shown decides how long it stays."""

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
from depsue.diagnostics.unit_rows import UnitRowsReport, check_unit_rows, require_unit_rows

__all__ = [
    "Change",
    "DriftReport",
    "DriftSide",
    "FEWEST_TO_TEST_DRIFT",
    "PropensityReport",
    "UnitRowsReport",
    "change_between",
    "check_drift",
    "check_propensities",
    "check_unit_rows",
    "require_no_drift",
    "require_propensities",
    "require_unit_rows",
]
