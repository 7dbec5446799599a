"""What a plan is: its settings, its points, its numbers, and the sentences that go with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from depsue.certificates import FRACTIONS
from depsue.data.logs import LoggedData
from depsue.errors import is_real, require, short
from depsue.learners.assumed import require_wish
from depsue.learners.candidates import Calibration
from depsue.learners.room import Aim
from depsue.rewards import RewardSettings


@dataclass(frozen=True)
class PlanSettings:
    """What is planned for."""

    aim: Aim = Aim()
    """Floor, delta, the most novelty."""
    objective: str | float = "most-novelty"
    """"most-novelty", "most-value", or a weight: value / V(pi0) + weight x novelty."""
    wish: float | None = None
    """A novelty whose number of rows is asked for."""
    campaign: str = "exploration"
    """The name that the folds depend on: the same as when certifying."""
    fractions: tuple[float, float, float] = FRACTIONS
    """Shares of learn, select and certify."""
    described: bool = True
    """Whether features say anything of the novel items."""
    rewards: RewardSettings = RewardSettings()
    """How q-hat is fitted."""

    def __post_init__(self) -> None:
        weight = not isinstance(self.objective, str) and is_real(self.objective)
        require(
            self.objective in ("most-novelty", "most-value")
            or (weight and 0 <= float(self.objective) < np.inf),
            "the objective must be most-novelty, most-value, or a weight >= 0 of novelty",
            found=short(self.objective),
            cure="0.5 says that a point of novelty is worth half a point of value",
        )
        if self.wish is not None:
            require_wish(self.wish, self.aim)


@dataclass(frozen=True)
class Point:
    """One level of one candidate; values are relative to V(pi0).

    Args:
        novelty: nu.
        value: anticipated, novel items as q-hat sees them.
        worst: anticipated, if novel items earn nothing.
        room: how far above the floor the bound is likely to lie.
        policy: pi_old, in words.
    """

    novelty: float
    value: float
    worst: float
    room: float
    policy: str


@dataclass(frozen=True)
class Plan:
    """What the logs say about showing new items.

    Args:
        rows, certifying: logged rows, and independent values (rows or units) in the fold to come.
        certain: the novelty that needs no data.
        frontier: for rising novelty, the best anticipated value that is likely to be certified.
        reaches: the boldest point of each candidate that has one.
        pick: what the objective says.
        why: in a sentence.
        enough: whether more than the certain level is likely.
        times: (multiple of the rows, novelty likely then).
        needed: (novelty, rows in all; None if no number would do).
        needed_rests_on: what the numbers of rows rest on.
        model: what was found about q-hat.
        propensities: what the test of them said.
        notes, assumptions: a sentence each.
    """

    rows: int
    certifying: float
    certain: float
    frontier: tuple[Point, ...]
    reaches: tuple[Point, ...]
    pick: Point
    why: str
    enough: bool
    times: tuple[tuple[int, float], ...]
    needed: tuple[tuple[float, float | None], ...]
    needed_rests_on: str
    model: str
    propensities: str
    notes: tuple[str, ...]
    assumptions: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def about_rows(rows: float | None) -> str:
    """A number of rows to two digits, for it is no better known."""
    if rows is None:
        return "no number"
    if rows < 1:
        return "0"
    step = 10 ** max(int(np.floor(np.log10(rows))) - 1, 0)
    return f"{int(np.ceil(rows / step) * step):,}"


def why_words(
    pick: Point,
    settings: PlanSettings,
    enough: bool,
    certain: float,
    needed: Sequence[tuple[float, float | None]],
) -> str:
    """Why this point, or why not more."""
    if not enough:
        more = next(((wish, rows) for wish, rows in needed if wish > certain), None)
        would = "nothing shows that more rows would do: so far q-hat sees too little difference"
        if more is not None and more[1] is not None:
            would = f"about {about_rows(more[1])} rows would do for {more[0]:.1%}"
        said = f"not enough data for more than the certain level, {certain:.1%}: {would}"
        if pick.novelty < certain - 1e-9:
            said += f"; of what is certain, {pick.novelty:.1%} has the most of the objective"
        return said
    goal = {"most-novelty": "the most novelty", "most-value": "the most value"}.get(
        str(settings.objective), f"the most of value + {settings.objective} x novelty"
    )
    return (
        f"{goal} among levels that are likely to pass (three times in four or more, if q-hat is "
        f"right); the bound on its value is likely to lie {pick.room:.1%} of V(pi0) above the "
        "floor, or more"
    )


def rests_on_words() -> str:
    """What the numbers of rows rest on, where the logs tell."""
    return (
        "q-hat as it is now; fitted on more rows it would be better, and on fewer worse, which is "
        "not counted"
    )


def assumed_spread_words(
    wish: float, rate: float, spread: float, others: Sequence[float | None]
) -> str:
    """What they rest on where the logs cannot tell, and how much hangs on it."""
    half, double = (about_rows(rows) for rows in others)
    return (
        f"an assumption, for these rows cannot tell which items are better: that an item one "
        f"standard deviation better than others earns {np.exp(spread):.2f} times as much (spread "
        f"{spread:g}) at a reward rate of {rate:.2g}; with half that spread {wish:.1%} needs "
        f"{half} rows, with twice of it {double}"
    )


def about_words(found: Calibration, rows: LoggedData) -> str:
    """What was found about q-hat."""
    return (
        f"mean reward {found.level:.4g} over {len(rows):,} learn and select rows "
        f"({int((rows.reward > 0).sum()):,} with a reward); on select rows, rewards follow q-hat "
        f"with slope {found.slope:.2f}, standard error {found.error:.2f}; used is {found.used:.2f}"
    )


def assumed_words(rows: LoggedData, n: float, settings: PlanSettings) -> tuple[str, ...]:
    """What the figures rest on."""
    return (
        "every logged propensity is the probability with which its action was drawn",
        f"rewards lie between 0 and {rows.r_max:g}",
        f"units are independent: the {n:,.0f} independent values to come are about units"
        if rows.unit is not None
        else f"rows are independent draws: {n:,.0f} of them are left to certify with",
        "novel items count as worth nothing until they have been shown, so the levels do not rest "
        "on what q-hat says of them; the column value does",
        "what is served meets the same users and rewards as the logs",
        f"the certificate is asked for once, in the campaign {settings.campaign!r}, on rows that "
        "this plan has not read; a plan promises nothing",
    )
