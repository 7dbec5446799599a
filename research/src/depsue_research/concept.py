"""The idea in a picture: need, bound, value, margin and novelty over the deployments of a campaign.

Certified exploration (safety `cumulative`) in a simulated shop whose truth is known. It redraws the
paper's overview of DEPSUE (the figure of its appendix); every mark is a figure of that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from depsue.data.checks import FloatArray, IntArray
from depsue.exploration import ExploreSettings, run_exploration
from depsue.progress import bars
from depsue.promises import Floor, Promise
from depsue.rewards import RewardSettings
from depsue.world import SyntheticSettings, synthetic_world

BLUE, RED, GREEN, GREY = "#1f5a96", "#b3312c", "#2e7d4f", "#6b7280"
SHOP = SyntheticSettings(users=300, supported=40, novel=10, novel_quality=0.5)
FLOOR = 0.95
"""Of V(pi0), which is known here: as a number, so that bound and need are values in every round."""


@dataclass(frozen=True)
class Stage:
    """One deployment; values over V(pi0).

    Args:
        need: what the bound had to reach.
        bound: the certified lower bound on the value.
        value: the true value of what was served.
        credit: the margin that could be shown beforehand, per decision.
        novelty: the true share of decisions that show a new item.
        certified: whether the certificate passed; else a fallback was served.
    """

    need: float
    bound: float
    value: float
    credit: float
    novelty: float
    certified: bool


def campaign(deployments: int, rows: int, seed: int) -> list[Stage]:
    """The stages of one campaign of certified exploration, with the truth beside them."""
    shop = synthetic_world(SHOP, seed=seed)
    unit = shop.value(shop.logging_policy)
    settings = ExploreSettings(
        promises=(Promise(Floor(None, absolute=FLOOR * unit)),),
        safety="cumulative",
        objective="most novelty",
        deployments=deployments,
        max_novelty=0.8,
        no_drift=True,
        rewards=RewardSettings(members=1, max_epochs=5),
    )
    with bars() as watch:
        result = run_exploration(shop, rows, settings, seed=seed, watch=watch)
    stages = []
    for deployment in result.deployments:
        explored = deployment.explored
        verdict = explored.certificate.verdicts[0]
        value, novelty = shop.value_and_novelty(explored.policy)
        stages.append(
            Stage(
                need=verdict.need / unit,
                bound=verdict.bound / unit,
                value=value / unit,
                credit=verdict.credit / unit,
                novelty=novelty,
                certified=explored.certified,
            )
        )
    return stages


def margins(stages: Sequence[Stage]) -> FloatArray:
    """(K + 1,) the true margin before each deployment and after the last, per decision of one."""
    earned = np.array([stage.value - FLOOR for stage in stages])
    return np.concatenate([[0.0], np.cumsum(earned)])


def table(stages: Sequence[Stage]) -> str:
    """The stages, as text."""
    lines = [" k   need  bound  value  margin  shown  novelty"]
    for k, (stage, margin) in enumerate(zip(stages, margins(stages), strict=False), start=1):
        lines.append(
            f"{k:2} {stage.need:6.3f} {stage.bound:6.3f} {stage.value:6.3f} {margin:7.3f} "
            f"{stage.credit:6.3f} {stage.novelty:8.3f}{'' if stage.certified else '  fallback'}"
        )
    return "\n".join(lines)


def figure(stages: Sequence[Stage]) -> Figure:
    """Three panels over the deployments: value, margin, novelty."""
    drawn = Figure(figsize=(9, 7.4), layout="constrained")
    value, margin, novelty = drawn.subplots(3, 1, sharex=True, height_ratios=[5, 2.2, 2.2])
    k = np.arange(1, len(stages) + 1)
    _values(value, k, stages)
    before = margins(stages)[:-1]
    margin.bar(k - 0.12, before, width=0.24, color=GREEN, alpha=0.35, label="earned, in truth")
    shown = [stage.credit for stage in stages]
    margin.bar(k + 0.12, shown, width=0.24, color=GREEN, label="shown by a lower bound")
    margin.axhline(0, color=GREY, lw=0.8)
    margin.set(ylabel="margin before it", title="... what was earned above the floor lowers it ...")
    margin.legend(frameon=False, loc="upper left", fontsize=9)
    novelty.bar(k, [stage.novelty for stage in stages], width=0.4, color=BLUE)
    for place, stage in zip(k, stages, strict=True):
        novelty.annotate(
            f"{stage.novelty:.0%}",
            (place, stage.novelty),
            ha="center",
            va="bottom",
            color=BLUE,
            fontsize=9,
        )
    novelty.set(
        ylabel="novelty",
        title="... and leaves room for new items",
        xticks=k,
        xticklabels=[f"deployment {number}" for number in k],
        xlim=(0.4, len(k) + 0.6),
        ylim=(0, 1.25 * max(0.05, *(stage.novelty for stage in stages))),
    )
    for axis in (value, margin, novelty):
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set(ha="left", x=0.0, fontsize=11)
    return drawn


def _values(axis: Axes, k: IntArray, stages: Sequence[Stage]) -> None:
    """Floor, need, bound, true value and true average so far."""
    needs = np.array([stage.need for stage in stages])
    bounds = np.array([stage.bound for stage in stages])
    true = np.array([stage.value for stage in stages])
    axis.axhline(FLOOR, color=RED, ls="--", lw=1.2, label="floor C")
    axis.axhline(1.0, color=GREY, ls=":", lw=0.9, label="V(pi0)")
    axis.bar(k, bounds - needs, 0.16, bottom=needs, color=BLUE, alpha=0.12, lw=0)
    axis.hlines(needs, k - 0.12, k + 0.12, lw=2.4, color=RED, label="need: floor less margin")
    axis.plot(k, bounds, "^", ms=9, color=BLUE, label="bound, before it is served")
    axis.plot(k, true, "o", ms=9, color=BLUE, label="true value")
    average = np.cumsum(true) / k
    axis.plot(
        k + 0.16, average, "-o", ms=8, lw=1, mfc="white", color=GREEN, label="true average so far"
    )
    low, high = min(*needs, *true, FLOOR), max(*needs, *bounds, *true, 1.0)
    room = 0.07 * (high - low)
    axis.set(
        ylabel="value / V(pi0)",
        ylim=(low - room, high + room),
        title="Each policy's bound must reach its need before it is served ...",
    )
    axis.legend(
        frameon=False,
        fontsize=9,
        ncols=6,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.03),
        columnspacing=1.3,
        handletextpad=0.6,
    )
