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
from depsue.diagnostics.propensities import check_propensities, require_propensities
from depsue.diagnostics.propensity_report import PropensityReport
from depsue.diagnostics.sample_ratio import (
    PeriodSpan,
    SampleRatioReport,
    check_sample_ratio,
    stream_sample_ratio,
)
from depsue.diagnostics.unit_rows import UnitRowsReport, check_unit_rows, require_unit_rows

__all__ = [
    "Change",
    "DriftReport",
    "DriftSide",
    "FEWEST_TO_TEST_DRIFT",
    "PropensityReport",
    "SampleRatioReport",
    "PeriodSpan",
    "UnitRowsReport",
    "change_between",
    "check_drift",
    "check_propensities",
    "check_sample_ratio",
    "check_unit_rows",
    "require_no_drift",
    "require_propensities",
    "require_unit_rows",
    "stream_sample_ratio",
]
