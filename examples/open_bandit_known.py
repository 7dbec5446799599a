"""The same contexts with clicks of known truth: bounds against the true value of `bts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from depsue import rng
from depsue.campaigns import Campaign
from depsue.certificates import MixtureLadder, Reads, Rules, certify
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.policies import ByItem, Uniform
from depsue.promises import Floor, Promise
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split
from depsue.world import RewardTable, World

BOUNDS = ("normal", "smoothing", "betting")
DELTA, FLOOR = 0.05, 0.8
ITEM, USER, BOTH = 0.5, 0.3, 0.3
"""Standard deviations of the three parts of logit q."""
COLOURS = {"normal": "#1f5a96", "smoothing": "#b3312c", "betting": "#2e7d4f"}


def known_world(contexts: FloatArray, catalogue: Catalogue, rate: float, *, seed: int) -> World:
    """A world in which the logged contexts come up equally often and every click rate is known::

        logit q(x, a) = c + .5 item(a) + .3 user(x) + .3 both(x, a)

    item, user and both are linear in the item's features, in the user's and in their products,
    with normal weights drawn from the seed, each scaled to mean 0 and deviation 1. c makes the
    uniform choice among all items earn `rate`. pi0 is uniform over the supported items.

    Args:
        contexts: (u, d), one for each logged row.
        catalogue: A items with features; which are novel.
        rate: the click rate of the uniform choice.
        seed: of the weights, and of what is drawn from the world.
    """
    draw = rng.generator(seed, "open bandit")
    users = np.asarray(contexts, dtype=np.float64)
    items = np.asarray(catalogue.features, dtype=np.float64)
    items = (items - items.mean(axis=0)) / np.maximum(items.std(axis=0), 1e-9)
    item = items @ draw.normal(size=items.shape[1])
    user = users @ draw.normal(size=users.shape[1])
    both = users @ draw.normal(size=(users.shape[1], items.shape[1])) @ items.T
    logit = ITEM * _scaled(item)[None, :] + USER * _scaled(user)[:, None] + BOTH * _scaled(both)
    low, high = -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if _mean(logit + middle) > rate else (middle, high)
    q = 1 / (1 + np.exp(-(logit + low)))
    pi0 = Uniform(~catalogue.novel)
    return World(contexts, RewardTable(q), catalogue, pi0, seed=seed)


@dataclass(frozen=True, eq=False)
class Cell:
    """One bound at one number of rows, over many logs.

    Args:
        world: in words.
        rows: logged rows; 60% of them certify.
        bound: its name.
        truth: V(pi), exactly.
        floor: C, absolute.
        bounds: (replications,) the bounds.
    """

    world: str
    rows: int
    bound: str
    truth: float
    floor: float
    bounds: FloatArray

    @property
    def above(self) -> int:
        """Bounds above the truth: errors."""
        return int((self.bounds > self.truth).sum())

    @property
    def p(self) -> float:
        """P(so many or more) if a bound errs exactly delta of the time: the one-sided test."""
        return binomial_tail(self.above, len(self.bounds), DELTA)

    @property
    def ratio(self) -> FloatArray:
        """(replications,) bound / truth."""
        return np.asarray(self.bounds / self.truth)

    @property
    def passed(self) -> float:
        """Share of certificates that passed."""
        return float((self.bounds >= self.floor).mean())


def study(
    name: str, world: World, target: ByItem, rows: Sequence[int], replications: int, *, seed: int
) -> list[Cell]:
    """Certificates for `target` from logs of pi0, again and again.

    Args:
        name: of the world.
        world: where the truth is known.
        target: the policy.
        rows: numbers of logged rows.
        replications: logs of each size.
        seed: of the logs.
    """
    truth, floor = world.value(target), FLOOR * world.value(world.logging_policy)
    promise = Promise(Floor(None, floor), "clicks")
    levels = MixtureLadder((target,), np.ones((1, 1)))
    cells = []
    for n in rows:
        bounds: dict[str, list[float]] = {bound: [] for bound in BOUNDS}
        for replication in range(replications):
            other = world.reseeded(rng.derive(seed, name, n, replication))
            folds = split(other.deploy(world.logging_policy, n, round=0), "open bandit")
            for bound in BOUNDS:
                rules = Rules((promise,), DELTA, bound)
                bounds[bound].append(certify(levels, folds, rules, Reads()).verdicts[0].bound)
        cells += [Cell(name, n, b, truth, floor, np.array(bounds[b])) for b in BOUNDS]
    return cells


@dataclass(frozen=True)
class Truth:
    """What a policy of a campaign really does, in a known world.

    Args:
        what: which policy.
        novelty: N(pi).
        value: V(pi) / V(pi0).
        without: the same if the new items earned nothing, which is what a certificate counts.
    """

    what: str
    novelty: float
    value: float
    without: float


def truths(campaign: Campaign, world: World) -> list[Truth]:
    """What may be deployed in round 1, each with its truth."""
    pi0 = world.value(world.logging_policy)
    nothing = np.array(world.q)
    nothing[:, world.catalogue.novel] = 0.0
    worthless = World(
        world.contexts, RewardTable(nothing), world.catalogue, Uniform(~world.catalogue.novel),
        seed=0,
    )  # fmt: skip
    truth = []
    for choice in campaign.choices(1):
        policy = campaign.policy(1, campaign.hash_of_choice(1, choice))
        value, novelty = world.value_and_novelty(policy)
        truth.append(Truth(choice.what, novelty, value / pi0, worthless.value(policy) / pi0))
    return truth


def figure_bounds(cells: Sequence[Cell]) -> Figure:
    """Bound / truth by rows: mean and the middle 90% of the replications, one panel a world."""
    names = list(dict.fromkeys(cell.world for cell in cells))
    figure = Figure(figsize=(3.4 * len(names), 3.9), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(names), sharey=True))
    for axis, name in zip(axes, names, strict=True):
        own = [cell for cell in cells if cell.world == name]
        rows = sorted({cell.rows for cell in own})
        axis.axhline(1.0, color="black", lw=1.2, ls="--", label="true value of bts")
        axis.axhline(own[0].floor / own[0].truth, color="grey", lw=1.2, ls=":", label="floor")
        for cell in own:
            x = rows.index(cell.rows) + 0.2 * (BOUNDS.index(cell.bound) - 1)
            low, high = np.quantile(cell.ratio, [0.05, 0.95])
            colour = COLOURS[cell.bound]
            label = cell.bound if cell.rows == rows[0] else None
            axis.plot([x, x], [low, high], color=colour, lw=2.2, alpha=0.45)
            axis.plot([x], [cell.ratio.mean()], "o", color=colour, ms=6, label=label)
        axis.set_xticks(range(len(rows)), [f"{n:,}" for n in rows])
        axis.set(title=name, xlabel="logged rows", xlim=(-0.5, len(rows) - 0.5))
        axis.title.set_fontsize(10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="lower bound / true value of bts", ylim=(0, None))
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def _scaled(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-9))


def _mean(logit: FloatArray) -> float:
    return float((1 / (1 + np.exp(-logit))).mean())
