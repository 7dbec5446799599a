"""What a round learns of rewards: q-hat, its calibration, and how far it is believed.

`learn` fits q-hat on the rows that may teach. `Calibration` corrects its level and slope on rows
that it was not fitted on. `trust_on_hidden_items` is a rehearsal: some supported actions are
hidden, their rows are kept from a reward model, which then chooses among them as it would among
novel ones. What that choice is worth can be read off the hidden rows, for these actions were shown.
It says how much of what q-hat promises will come true where the logs cannot say so themselves: of
novel actions before they have been shown, and of supported ones that a policy shows far more often
than the logs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData, joined
from depsue.exploration.settings import ExploreSettings
from depsue.policies.cached import NOWHERE, CachedRewardModel
from depsue.policies.tilted import ModelSoftmax
from depsue.progress import Watch, silent
from depsue.protocols import RewardModel
from depsue.rewards import (
    Blend,
    LinearRewardModel,
    RewardSettings,
    fit_linear,
    fit_rewards,
    heldout_split,
)

FIRST_NOVEL_STRENGTH = 2.0
"""Of the choice among novel actions; the first where nothing is known of them yet."""
STEADY = 50
"""Rows for which the common calibration counts in that of novel, or of supported, actions."""

Fit = Callable[[LoggedData], RewardModel]
"""Fits a reward model of one's own to rows."""


@dataclass(frozen=True, eq=False)
class LearnedRewards:
    """What a round knows of rewards before it compares policies.

    Args:
        model: q-hat, which remembers its answers at `contexts`.
        novel_model: what chooses among novel actions, if that is not q-hat.
        trust: share of q-hat's promises about what it has not seen that is believed.
        seen: rows that q-hat was fitted on.
        calibrating: rows that it was not fitted on.
        contexts: (u, d) the distinct contexts of all of them; none where requests bring candidates
            of their own, which hardly ever come back.
    """

    model: CachedRewardModel
    novel_model: CachedRewardModel | None
    trust: float
    seen: LoggedData
    calibrating: LoggedData
    contexts: FloatArray


def learn(
    rows: LoggedData,
    select: LoggedData,
    settings: ExploreSettings,
    *,
    trust: float | None,
    seed: int,
    fit: Fit | None = None,
    watch: Watch = silent,
) -> LearnedRewards:
    """Fit q-hat, keep rows to calibrate it on, and rehearse how far it is to be believed.

    Args:
        rows: what may teach.
        select: the select fold, which calibrates.
        settings: how.
        trust: of an earlier round; None is to rehearse now.
        seed: of the draws and of the networks.
        fit: fits a reward model of one's own, which is taken at its word; None fits q-hat.
        watch: shows progress.
    """
    if len(rows) > settings.most_rows:
        draw = rng.generator(seed, "rows for q-hat")
        rows = rows.take(np.sort(draw.choice(len(rows), settings.most_rows, replace=False)))
    seen, heldout = heldout_split(rows, settings.rewards, seed=seed)
    calibrating = joined([heldout, select])
    contexts = joined([rows, calibrating]).contexts if rows.candidates is None else NOWHERE
    fitted, hopeful = _fitted(rows, seen, settings, seed, fit, watch)
    if trust is None:
        trust = 1.0 if fit is not None else _rehearsed(rows, settings, seed)
    return LearnedRewards(
        model=CachedRewardModel(fitted, contexts),
        novel_model=None if hopeful is None else CachedRewardModel(hopeful, contexts),
        trust=trust,
        seen=seen,
        calibrating=calibrating,
        contexts=contexts,
    )


def apart_from(earlier: Sequence[LoggedData], certify: LoggedData) -> list[LoggedData]:
    """Earlier rounds without the units that will certify: what was learned must not know them."""
    apart = []
    for rows in earlier:
        if rows.unit is None or rows.units is None or certify.units is None:
            apart.append(rows)
            continue
        others = np.flatnonzero(~np.isin(rows.units[rows.unit], certify.units))
        if len(others):
            apart.append(rows.take(others))
    return apart


def _fitted(
    rows: LoggedData,
    seen: LoggedData,
    settings: ExploreSettings,
    seed: int,
    fit: Fit | None,
    watch: Watch,
) -> tuple[RewardModel, RewardModel | None]:
    """q-hat, and what chooses among novel actions if that is not q-hat."""
    if fit is not None:
        return fit(seen), None
    if rows.catalogue.features is None:  # nothing tells items apart: every prediction is the mean
        flat = np.zeros(rows.contexts.shape[1]), np.zeros(len(rows.catalogue))
        return LinearRewardModel(float(seen.reward.mean()), *flat, rows.r_max), None
    networks = fit_rewards(shown_only(rows), settings.rewards, seed=seed, watch=watch)
    linear = fit_linear(seen)
    hopeful = None
    if settings.novel == "optimistic":
        hopeful = Blend([networks.combined("optimistic"), linear])
    return Blend([networks, linear]), hopeful


def shown_only(rows: LoggedData) -> LoggedData:
    """The same rows for what looks at shown items only: candidates would be copied for nothing."""
    return rows if rows.candidates is None else replace(rows, candidates=None)


def _rehearsed(rows: LoggedData, settings: ExploreSettings, seed: int) -> float:
    """How far q-hat is believed of what it has not seen."""
    if rows.catalogue.features is None:
        return 0.0
    strength, even = FIRST_NOVEL_STRENGTH, settings.even_share
    return trust_on_hidden_items(rows, settings.rewards, strength=strength, even=even, seed=seed)


@dataclass(frozen=True)
class Calibration:
    """q-hat with level and slope corrected on rows that it was not fitted on, novel actions apart.

    Args:
        centre, level: the mean prediction on those rows, and the mean reward.
        slope: of the reward by its prediction.
        supported, novel: what is added for actions of either kind.
        r_max: the largest reward.
    """

    centre: float
    level: float
    slope: float
    supported: float
    novel: float
    r_max: float

    @classmethod
    def on(cls, model: RewardModel, rows: LoggedData) -> Calibration:
        """Of a model, on rows."""
        predicted = model.predict_pairs(rows.contexts, rows.action, rows.context)
        centre, level = float(predicted.mean()), float(rows.reward.mean())
        slope = _slope(predicted, rows.reward)
        novel = rows.catalogue.novel[rows.action]
        left = rows.reward - level - slope * (predicted - centre)
        off = [float(left[mine].sum()) / (int(mine.sum()) + STEADY) for mine in (~novel, novel)]
        return cls(centre, level, slope, off[0], off[1], rows.r_max)

    def corrected(self, q_hat: FloatArray, novel: Mask) -> FloatArray:
        """(..., L) predictions, corrected; `novel` says which of them are of novel actions."""
        out = np.asarray(q_hat, dtype=np.float64) - self.centre
        out *= self.slope
        out += np.where(novel, self.novel, self.supported) + self.level
        return np.asarray(np.clip(out, 0.0, self.r_max, out=out))


def _slope(predicted: FloatArray, reward: FloatArray) -> float:
    """Of the reward by its prediction, less its standard error, kept within [0, 1]."""
    x, y = float(predicted.mean()), float(reward.mean())
    variance = float(((predicted - x) ** 2).mean())
    if variance <= 0:
        return 0.0
    together = float(((predicted - x) * (reward - y)).mean())
    error = float(reward.std()) / math.sqrt(variance * len(reward))
    return min(max(together / variance - error, 0.0), 1.0)


MOST_HIDDEN = 0.2
"""Share of the supported actions that are hidden; fewer if fewer are novel."""
MOST_ROWS, MOST_PAIRS = 100_000, 4_000_000
"""Rows that the rehearsal's q-hat is fitted on, and pairs that it is asked about, at most."""
HIGHEST_SHARE = 0.01
"""No hidden row has more than this share of all weight."""


def trust_on_hidden_items(
    rows: LoggedData,
    settings: RewardSettings,
    *,
    strength: float,
    even: float,
    seed: int,
) -> float:
    """What a choice among unseen actions was worth, as a share of what q-hat promised; at most 1.

    One standard error is taken off, so that little evidence means little trust; 0 if there is none.

    Args:
        rows: the logs.
        settings: how q-hat is fitted; here with one network.
        strength: how strongly q-hat decides among the actions.
        even: share that is spread evenly.
        seed: of the choice of hidden actions and of the network.
    """
    draw = rng.generator(seed, "unseen")
    novel = rows.catalogue.novel
    supported = np.flatnonzero(~novel)
    count = min(int(novel.sum()), int(MOST_HIDDEN * len(supported)))
    if count < 2:
        return 0.0
    hidden = np.zeros(len(novel), dtype=bool)
    hidden[draw.choice(supported, count, replace=False)] = True
    known = np.flatnonzero(~hidden[rows.action])
    each = max(1, min(count, rows.requests.width(len(novel))))
    contexts = draw.permutation(len(rows.contexts))[: max(1, MOST_PAIRS // each)]
    asked = np.flatnonzero(hidden[rows.action] & np.isin(rows.context, contexts))
    if len(asked) < 2 or len(known) < 2:
        return 0.0
    if len(known) > MOST_ROWS:
        known = np.sort(draw.choice(known, MOST_ROWS, replace=False))
    seen, tested = shown_only(rows).take(known), rows.take(asked)
    fitted, held = heldout_split(seen, settings, seed=seed)
    networks = fit_rewards(seen, replace(settings, members=1), seed=seed)
    model = Blend([networks, fit_linear(fitted)])
    q_hat, spread, place = _of_hidden(model, tested, hidden)
    scale = max(spread, 1e-9)
    choice = ModelSoftmax(model, hidden, strength=strength, scale=scale, even=even)
    pi = choice.choice_among(tested.requests, q_hat)
    weight = pi[tested.context, place] / tested.propensity
    weight = np.minimum(weight, HIGHEST_SHARE * weight.sum())
    share = weight / weight.sum()
    earned = float(share @ tested.reward)
    error = float(np.sqrt(share**2 @ (tested.reward - earned) ** 2))
    hoped = Calibration.on(model, held).corrected(q_hat, np.zeros(1, dtype=bool))
    promised = float(share @ hoped[tested.context, place])
    return float(np.clip((earned - error) / promised, 0.0, 1.0)) if promised > 0 else 0.0


def _of_hidden(
    model: RewardModel, tested: LoggedData, hidden: Mask
) -> tuple[FloatArray, float, IntArray]:
    """(u, L) predictions for hidden candidates, their deviation, and (n,) the places of rows."""
    requests = tested.requests
    place = requests.place(tested.action, tested.context)
    if requests.sets is None:
        every, u = np.flatnonzero(hidden), len(requests)
        which = np.repeat(np.arange(u), len(every))
        pairs = model.predict_pairs(requests.contexts, np.tile(every, u), which)
        q_hat = np.zeros((u, len(hidden)))
        q_hat[:, every] = pairs.reshape(u, len(every))
        centred = q_hat[:, every] - q_hat[:, every].mean(axis=1, keepdims=True)
        return q_hat, float(centred.std()), place
    sets = requests.sets
    mine = np.flatnonzero(hidden[sets.items])
    values = np.zeros(len(sets.items))
    values[mine] = model.predict_pairs(requests.contexts, sets.items[mine], sets.request[mine])
    q_hat = requests.table(values, len(hidden))
    there = requests.table(hidden[sets.items].astype(np.float64), len(hidden))
    mean = (q_hat * there).sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True)
    spread = math.sqrt(float((there * (q_hat - mean) ** 2).sum() / there.sum()))
    return q_hat, spread, place
