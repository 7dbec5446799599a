"""What a certificate's error rate really is: simulated where the floor is just missed.

An error is a certificate that is issued for a policy whose true value is below the floor. The
candidates are (1 - share) pi_s + share pi_n with worthless novel actions and a value 0.1% below
the floor, so that every certificate is an error and nothing but the bound stands in its way.
Strict kinds go through `certify` as a user's would; the paper's run on counts of (context, action)
cells, for all replications at once. Shapes: u contexts, A actions, R replications.
"""

from __future__ import annotations

from depsue.errors import is_whole, require, short
from depsue.progress import Watch, silent
from depsue_research.error_rates.paper import paper_rates
from depsue_research.error_rates.rates import GROUPS, ErrorRate, repeated
from depsue_research.error_rates.strict import TRIALS

__all__ = ["GROUPS", "TRIALS", "ErrorRate", "error_rates"]


def error_rates(
    replications: int = 2000, *, seed: int = 0, watch: Watch = silent
) -> list[ErrorRate]:
    """The error rate of every kind of certificate.

    Args:
        replications: of each kind.
        seed: of the logs; worlds and candidates are always the same.
        watch: shows progress.
    """
    require(
        is_whole(replications) and replications >= 1,
        "replications must be a whole number, at least 1",
        found=short(replications),
        cure="2000 tells 5% from 7%",
    )
    rates: list[ErrorRate] = []
    for place, (name, trial) in enumerate(TRIALS.items()):
        watch("error rates", place, len(TRIALS) + 1, name)
        rates += repeated(name, trial, replications, seed)
    watch("error rates", len(TRIALS), len(TRIALS) + 1, "the paper's")
    for group in paper_rates(replications, seed):
        rates += group
    return sorted(rates, key=lambda rate: GROUPS.index(rate.group))
