"""The table of validation OPE: which policies an estimator would let pass, and which not."""

from __future__ import annotations

from dataclasses import dataclass

from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import OPG, Runs, relative_values
from depsue_research.paper.outputs.table import Table, number, rate

ESTIMATORS = ("ips", "dm", "dr")


@dataclass(frozen=True)
class Verdicts:
    """What an estimator says of a method's policies, against the truth on the test users.

    Args:
        worse: policies with V(pi) <= V(pi0).
        accepted: how many of them it accepts: V-hat(pi) > V_on(pi0) on the validation rows.
        better: policies with V(pi) > V(pi0).
        refused: how many of them it does not accept.
    """

    worse: int
    accepted: int
    better: int
    refused: int

    @property
    def unsafe_accepted(self) -> float | None:
        """Share of the worse policies that are accepted; None if there are none."""
        return self.accepted / self.worse if self.worse else None

    @property
    def safe_refused(self) -> float | None:
        """Share of the better policies that are refused; None if there are none."""
        return self.refused / self.better if self.better else None


def validated(runs: Runs, method: str) -> list[Result]:
    """The cells of a method, over all levels and seeds, that OPE has looked at."""
    return [result for result in runs.over(method) if "validation" in result]


def verdicts(runs: Runs, method: str, estimator: str) -> Verdicts:
    """An estimator's verdicts over the policies of all levels and seeds."""
    worse = accepted = better = refused = 0
    for result in validated(runs, method):
        is_better = relative_values(result)[-1] > 1
        accepts = result["validation"][estimator] > result["validation"]["on_policy"]
        better += is_better
        worse += not is_better
        refused += is_better and not accepts
        accepted += accepts and not is_better
    return Verdicts(worse, accepted, better, refused)


def validation(runs: Runs, paper: Published) -> Table | None:
    """IPS, DM and DR over the policies of OPG; None where nothing was validated."""
    rows: list[tuple[str, ...]] = []
    for method in OPG:
        if not validated(runs, method):
            continue
        for estimator in ESTIMATORS:
            v = verdicts(runs, method, estimator)
            rows.append(
                (
                    NAMES[method],
                    estimator.upper(),
                    number(v.unsafe_accepted),
                    rate(v.accepted, v.worse),
                    number(paper.error_rate(estimator, method, "type_2")),
                    number(v.safe_refused),
                    rate(v.refused, v.better),
                    number(paper.error_rate(estimator, method, "type_1")),
                )
            )
    if not rows:
        return None
    return Table(
        "validation_ope",
        f"Validation OPE: unsafe policies accepted and safe ones refused, {runs.seeds_in_words()}",
        (
            "method",
            "estimator",
            "unsafe accepted",
            "count",
            'paper: "type II"',
            "safe refused",
            "count of safe",
            'paper: "type I"',
        ),
        tuple(rows),
        f"Over the policies of all levels and seeds; {runs.recipe.validation_rows:,} validation "
        "rows of pi0 each. Unsafe: V(pi) <= V(pi0) on the test users; accepted: the estimate is "
        "above pi0's mean reward on the validation rows. Shares are among the unsafe, and among "
        "the safe policies; '-' where there is none. The paper prints these shares under the names "
        "type II and type I, which are swapped against its own hypotheses (H0: no better than "
        "pi0): accepting an unsafe policy is an error of the first kind."
        + (
            f" Its {paper.seeds * len(paper.levels)} policies are of {paper.seeds} seeds."
            if paper.seeds
            else ""
        ),
    )
