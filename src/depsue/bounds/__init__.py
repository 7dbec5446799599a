"""Lower confidence bounds on V(pi): hcope (Eq. 4), smoothing, betting, normal."""

from depsue.bounds.betting import Betting, betting_lower, predictable_bets
from depsue.bounds.hcope import Hcope, hcope_at, hcope_from_rewarded
from depsue.bounds.normal import Normal
from depsue.bounds.rewarded import Rewarded, rewarded_rows, tuning_rows
from depsue.bounds.smoothing import Smoothing, log_sums, smoothing_from_sums
from depsue.errors import ConfigError, short
from depsue.protocols import Bound

__all__ = [
    "Betting",
    "Hcope",
    "Normal",
    "Rewarded",
    "Smoothing",
    "betting_lower",
    "bound_named",
    "hcope_at",
    "hcope_from_rewarded",
    "log_sums",
    "predictable_bets",
    "rewarded_rows",
    "smoothing_from_sums",
    "tuning_rows",
]

_BOUNDS: dict[str, type[Betting] | type[Hcope] | type[Smoothing]] = {
    "betting": Betting,
    "hcope": Hcope,
    "smoothing": Smoothing,
}


def bound_named(name: str) -> Bound:
    """The bound of that name with its default settings; `Normal` has none, so no name either."""
    if name in _BOUNDS:
        return _BOUNDS[name]()
    raise ConfigError(
        f"a bound must be one of {', '.join(sorted(_BOUNDS))}", found=short(name), cure="name one"
    )
