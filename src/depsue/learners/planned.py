"""What a plan is: its settings, its points, its numbers, and the sentences that go with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from depsue.certificates import FRACTIONS, Levels, Rules
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.learners.assumed import Assumed, require_wish
from depsue.learners.goal import MOST_NOVELTY, in_words, require_objective
from depsue.learners.room import Aim
from depsue.rewards import RewardSettings


@dataclass(frozen=True)
class PlanSettings:
    """What is planned for."""

    aim: Aim = Aim()
    """Floors, delta, the most novelty."""
    objective: str | float = MOST_NOVELTY
    """"most novelty", "most value", "balanced", or a weight: value / V(pi0) + weight x novelty."""
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
        require_objective(self.objective)
        if self.wish is not None:
            require_wish(self.wish, self.aim)


@dataclass(frozen=True)
class Point:
    """One level of one candidate; values are relative to V(pi0).

    Args:
        novelty: nu.
        value: anticipated, novel items as q-hat sees them.
        worst: anticipated, if novel items earn nothing.
        room: how far above its floor the bound is likely to lie, for the promise that binds.
        policy: pi_old, in words.
        binds: the promise with the least room.
    """

    novelty: float
    value: float
    worst: float
    room: float
    policy: str
    binds: str = "reward"


@dataclass(frozen=True)
class Kept:
    """One promise, at the pick.

    Args:
        name, floor: of the promise; the floor in words.
        delta: its part.
        rows: certifying rows (or independent units) that it is about.
        logging_value: pi0's value in it.
        room: how far above the floor its bound is likely to lie, over that value.
    """

    name: str
    floor: str
    delta: float
    rows: float
    logging_value: float
    room: float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The pick as something to certify: `certify(chosen.levels, folds, chosen.rules, Reads())`.

    Args:
        levels: mixtures with the pick's pi_old, safest first; None stands for a pi0 that cannot
            be called.
        rules: the promises, delta, the clip, and the bound that is likely to cost least.
    """

    levels: Levels
    rules: Rules


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
        promises: each promise at the pick.
        chosen: the pick as something to certify; None where it is certain. Not in the JSON.
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
    promises: tuple[Kept, ...]
    chosen: Chosen | None = field(repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        found = asdict(replace(self, chosen=None))
        del found["chosen"]
        return found


@dataclass(frozen=True)
class Calibration:
    """reward = level + used (q-hat - centre): what rows that q-hat has not seen say of it.

    Args:
        slope: of rewards on predictions.
        error: its standard error.
        level: the mean reward.
        centre: the mean prediction.
        r_max: the largest possible reward.
    """

    slope: float
    error: float
    level: float
    centre: float
    r_max: float

    @classmethod
    def of(cls, q_hat: FloatArray, rows: LoggedData) -> Calibration:
        """From (m,) predictions for rows that the model has not seen."""
        variance, y = float(q_hat.var()), rows.reward
        slope = error = 0.0
        if variance > 1e-12:
            slope = float(((q_hat - q_hat.mean()) * y).mean()) / variance
            error = float(y.std()) / math.sqrt(variance * len(y))
        level = max(float(y.mean()), 0.5 * rows.r_max / len(y))  # never quite 0
        return cls(slope, error, level, float(q_hat.mean()), rows.r_max)

    @property
    def used(self) -> float:
        """The slope less one standard error, within [0, 1]."""
        return min(max(self.slope - self.error, 0.0), 1.0)

    def __call__(self, q_hat: FloatArray) -> FloatArray:
        """Predictions, corrected."""
        wide = np.asarray(q_hat, dtype=np.float64)
        return np.asarray(np.clip(self.level + self.used * (wide - self.centre), 0.0, self.r_max))


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
        if pick.room < 0:
            said += (
                f"; pi0 itself is not likely to be certified: its bound would lie {-pick.room:.1%} "
                f"of its value below the floor of {pick.binds!r}"
            )
        return said
    several = len(settings.aim.promises) > 1
    return (
        f"{in_words(settings.objective)} among levels that are likely to pass (three times in four "
        f"or more); the bound on its value is likely to lie {pick.room:.1%} of V(pi0) above the "
        f"floor" + (f" in the promise that binds, {pick.binds!r}" if several else "") + ", or more"
    )


def rests_on_words(assumed: Assumed | None, wish: float, others: Sequence[float | None]) -> str:
    """What the numbers of rows rest on, and how much hangs on what is assumed.

    Args:
        assumed: None where the logs tell.
        wish: the novelty of `others`.
        others: rows for it with half and with twice the spread.
    """
    if assumed is None:
        return (
            "q-hat as it is now; fitted on more rows it would be better, and on fewer worse, which "
            "is not counted"
        )
    half, double = (about_rows(rows) for rows in others)
    return (
        f"an assumption, for these rows cannot tell which items are better: that an item one "
        f"standard deviation better than others earns {np.exp(assumed.spread):.2f} times as much "
        f"(spread {assumed.spread:g}) at a reward rate of {assumed.rate:.2g}; with half that "
        f"spread {wish:.1%} needs {half} rows, with twice of it {double}"
    )


def about_words(found: Calibration, rows: LoggedData, trust: float | None) -> str:
    """What was found about q-hat; `trust` is how much of its promises of unseen items is believed.

    None says that nothing was rehearsed.
    """
    believed = ""
    if trust is not None:
        believed = (
            f"; {trust:.0%} of what it says of new items is believed, as much as came true, less a "
            "standard error, when items were hidden from it"
        )
    return (
        f"mean reward {found.level:.4g} over {len(rows):,} learn and select rows "
        f"({int((rows.reward > 0).sum()):,} with a reward); on rows that it was not fitted on, "
        f"rewards follow q-hat with slope {found.slope:.2f}, standard error {found.error:.2f}"
        f"{believed}"
    )


def assumed_words(rows: LoggedData, n: float, settings: PlanSettings) -> tuple[str, ...]:
    """What the figures rest on."""
    limits = [f"rewards lie between 0 and {rows.r_max:g}"] + [
        f"{one.reward} lies between 0 and {one.r_max:g}"
        for one in settings.aim.promises
        if one.reward is not None
    ]
    return (
        "every logged propensity is the probability with which its action was drawn",
        ", ".join(limits),
        f"units are independent: the rows of those left to certify with count for about {n:,.0f} "
        "independent rows"
        if rows.unit is not None
        else f"rows are independent draws: {n:,.0f} of them are left to certify with",
        "novel items count as worth nothing until they have been shown, so the levels do not rest "
        "on what q-hat says of them; the column value does",
        "what is served meets the same users and rewards as the logs",
        f"the certificate is asked for once, in the campaign {settings.campaign!r}, on rows that "
        "this plan has not read; a plan promises nothing",
    )
