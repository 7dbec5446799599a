"""Lower confidence bounds on V(pi): hcope (Eq. 4), smoothing, betting, normal."""

from depsue.bounds.base import (
    BaseBound,
    BoundRun,
    MergedMoments,
    Partition,
    Passes,
    anticipated,
    tuning_rows,
)
from depsue.bounds.betting import Betting, best_bet, betting_lower, predictable_bets
from depsue.bounds.hcope import (
    Hcope,
    RewardedRows,
    hcope_from_rewarded,
    rewarded_rows,
    tau_from,
)
from depsue.bounds.normal import Normal, Pilot
from depsue.bounds.smoothing import SMOOTHING_SCALES, Smoothing, log_sums, smoothing_from_sums
from depsue.bounds.starts import StartMixture, weight_begun
from depsue.errors import ConfigError, short

__all__ = [
    "BaseBound",
    "Betting",
    "BoundRun",
    "Hcope",
    "MergedMoments",
    "Normal",
    "Partition",
    "Passes",
    "Pilot",
    "RewardedRows",
    "SMOOTHING_SCALES",
    "Smoothing",
    "StartMixture",
    "anticipated",
    "best_bet",
    "betting_lower",
    "bound_named",
    "hcope_from_rewarded",
    "log_sums",
    "predictable_bets",
    "rewarded_rows",
    "smoothing_from_sums",
    "tau_from",
    "tuning_rows",
    "weight_begun",
]

_BOUNDS: dict[str, type[BaseBound]] = {
    "betting": Betting,
    "hcope": Hcope,
    "smoothing": Smoothing,
}


def bound_named(name: str) -> BaseBound:
    """The bound of that name with its default settings; `Normal` has none, so no name either."""
    if name in _BOUNDS:
        return _BOUNDS[name]()
    raise ConfigError(
        f"a bound must be one of {', '.join(sorted(_BOUNDS))}", found=short(name), cure="name one"
    )
