"""The page and the figure about the hostile worlds; every number is computed from the results.

`groups` gathers the campaigns of one kind and counts broken promises, `page` writes the Markdown,
`figure` draws novelty against value, a panel for each world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from depsue.data.checks import FloatArray
from depsue.testing.bounds import binomial_tail, rate_interval
from depsue_research.hostile.campaigns import DELTA, FLOOR, RECIPE, WORLDS, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALPHA = 0.01
"""Of the binomial test against delta."""

POOLS = {
    "each": "Mode `each`",
    "cumulative": "Mode `cumulative`",
    "both": "Both modes",
    "certified": "Both modes, certified answers only, for the others are certain",
}

NONE, FEW = 1e-9, 0.01
"""Novelty that is none, and that is hardly any."""


def page(results: Sequence[Result], command: str) -> str:
    """The page.

    Args:
        results: finished work, of campaigns and of refusals.
        command: what made it.
    """
    campaigns = groups(results)
    lines = [
        "# Hostile worlds",
        "",
        f"Made by `{command}`; every campaign is a line of `hostile.jsonl`. {_seeds(campaigns)}",
        "",
        f"Certified exploration as the recipe of the paper's experiment has it (floor {FLOOR:g} of "
        f"V(pi0), delta {DELTA:g} a deployment, the objective `{RECIPE}`, no drift declared, "
        "at most half of the decisions novel), with small networks for q-hat, in worlds that are "
        "against it. Values are exact and over V(pi0); novelty is exact too.",
        "",
        *_worlds(campaigns),
        "",
        *_verdict(campaigns),
        "",
        "![novelty against value in each world](hostile.png)",
        "",
        "The last deployment of every campaign (small) and their means (large), set apart a little "
        "where they would hide each other.",
        "",
        "## Novelty, value and broken promises",
        "",
        "Of the last deployment, over the seeds: mean, and the least in brackets. *Promised, "
        "worst* is the least of what is promised, over all deployments: a value in the mode "
        "`each`, the mean value so far in the mode `cumulative`. *Broken* counts deployments where "
        "that is below the floor, with the exact 95% interval of the rate. *Answers*: certified, "
        "the level that is certain, pi0, over all deployments.",
        "",
        *_table(campaigns),
        "",
        "Naive Safe Exploration shows novel items in 5% of the decisions, uniformly, and cannot "
        "fall below the floor, whatever they are worth.",
        "",
        *_worthless(campaigns),
        *_refused(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


ROUNDING = 1e-9
"""A value so little below the floor is at it."""

ANSWERS = ("certified", "certain", "pi0")


@dataclass(frozen=True)
class Broken:
    """How often a promise was broken, of n deployments."""

    count: int
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% interval of the rate."""
        return rate_interval(self.count, self.n)

    @property
    def p_value(self) -> float:
        """One-sided: so many or more, if the true rate were delta."""
        return binomial_tail(self.count, self.n, DELTA)

    def __add__(self, other: Broken) -> Broken:
        return Broken(self.count + other.count, self.n + other.n)


@dataclass(frozen=True, eq=False)
class Group:
    """The campaigns of one world, K, mode of safety and objective, one a seed.

    Args:
        world, deployments, safety, objective: what they share.
        runs: R results of `run_case` that were not refused.
        refused: how many were.
    """

    world: str
    deployments: int
    safety: str
    objective: str
    runs: tuple[Result, ...]
    refused: int = 0

    @cached_property
    def novelty(self) -> FloatArray:
        """(R, K) true novelty."""
        return self._table("novelty")

    @cached_property
    def value(self) -> FloatArray:
        """(R, K) true value over V(pi0)."""
        return self._table("value")

    @cached_property
    def anticipated(self) -> FloatArray:
        """(R, K) the value over V(pi0) that was expected when the policy was chosen."""
        return self._table("anticipated")

    @property
    def promised(self) -> FloatArray:
        """(R, K) what the promise is about: each value, or the mean of all so far."""
        if self.safety == "each":
            return self.value
        return np.cumsum(self.value, axis=1) / np.arange(1, self.deployments + 1)

    @property
    def broken(self) -> Broken:
        """Deployments below the floor, or after which the mean so far was."""
        return Broken(int((self.promised < FLOOR - ROUNDING).sum()), self.promised.size)

    @property
    def broken_certified(self) -> Broken:
        """The same of the deployments with a certified answer: the others cannot do harm."""
        own = self.promised[
            np.array(
                [[round["answer"] == "certified" for round in run["rounds"]] for run in self.runs]
            )
        ]
        return Broken(int((own < FLOOR - ROUNDING).sum()), own.size)

    @property
    def answers(self) -> dict[str, int]:
        """How often each of the three answers was given, over all deployments."""
        seen = Counter(round["answer"] for run in self.runs for round in run["rounds"])
        return {name: seen[name] for name in ANSWERS}

    def _table(self, name: str) -> FloatArray:
        return np.array([[round[name] for round in run["rounds"]] for run in self.runs])


def groups(results: Iterable[Result]) -> list[Group]:
    """The results of campaigns by what they share, in the order of their first ones."""
    by_kind: dict[tuple[str, int, str, str], list[Result]] = {}
    for result in results:
        if "rounds" in result:
            key = (result["world"], result["deployments"], result["safety"], result["objective"])
            by_kind.setdefault(key, []).append(result)
    made = []
    for key, runs in by_kind.items():
        finished = tuple(run for run in runs if run["rounds"])
        made.append(Group(*key, finished, len(runs) - len(finished)))
    return made


def pooled(campaigns: Iterable[Group]) -> dict[str, Broken]:
    """Broken promises in all worlds: by mode of safety, together, and of certified answers only."""
    broken = {name: Broken(0, 0) for name in ("each", "cumulative", "both", "certified")}
    for group in campaigns:
        if group.runs:
            for name in (group.safety, "both"):
                broken[name] = broken[name] + group.broken
            broken["certified"] = broken["certified"] + group.broken_certified
    return broken


def refusals(results: Iterable[Result]) -> dict[tuple[str, int], list[str | None]]:
    """(who was asked about what, rows) -> the messages, None where nothing was refused."""
    messages: dict[tuple[str, int], list[str | None]] = {}
    for result in results:
        for answer in result.get("answers", ()):
            messages.setdefault((answer["what"], answer["rows"]), []).append(answer["said"])
    return messages


def by_name(campaigns: Iterable[Group]) -> Mapping[tuple[str, int, str, str], Group]:
    """The groups that have runs, by world, K, safety and objective."""
    return {(g.world, g.deployments, g.safety, g.objective): g for g in campaigns if g.runs}


def _seeds(campaigns: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) + group.refused for group in campaigns})
    if not counts:
        return "No campaign is finished yet."
    if len(counts) == 1:
        return f"Seeds 0 to {counts[0] - 1}: {counts[0]} replications, each a world of its own."
    return f"{counts[0]} to {counts[-1]} replications, each a world of its own: not all are done."


def _worlds(campaigns: Sequence[Group]) -> list[str]:
    lines = ["| world | what is hostile | V(pi0), mean | rows in all |", "|---|---|--:|--:|"]
    for name, kind in WORLDS.items():
        base = [run["logging_value"] for g in campaigns if g.world == name for run in g.runs]
        shown = f"{np.mean(base):.4f}" if base else "–"
        size = f"{kind.settings.supported} + {kind.settings.novel} items"
        lines.append(f"| {name} | {kind.words}; {size} | {shown} | {kind.rows:,} |")
    return lines


def _verdict(campaigns: Sequence[Group]) -> list[str]:
    lines = []
    for name, broken in pooled(campaigns).items():
        if broken.n:
            lines.append(f"- {POOLS[name]}: {_broken(broken)}; {_test(broken)}.")
    refused = sum(group.refused for group in campaigns)
    lines.append(f"- Campaigns that ended with an error: {refused}.")
    return lines


def _broken(broken: Broken) -> str:
    low, high = broken.interval
    return f"{broken.count} of {broken.n:,} promises broken ({low:.3f} to {high:.3f})"


def _test(broken: Broken) -> str:
    said = "passes" if broken.p_value >= ALPHA else "**fails**"
    return f"{said} the one-sided binomial test against delta (p = {broken.p_value:.2g})"


def _table(campaigns: Sequence[Group]) -> list[str]:
    lines = [
        "| world | K | safety | novelty | value | promised, worst | broken | answers |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    seen: set[str] = set()
    for g in campaigns:
        if not g.runs:
            continue
        if g.world not in seen:
            naive = np.array(
                [run["naive_value"] for h in campaigns if h.world == g.world for run in h.runs]
            )
            lines.append(
                f"| {g.world} | – | Naive Safe Exploration | {1 - FLOOR:.3f} | {_both(naive)} | "
                f"{naive.min():.3f} | 0, certain | – |"
            )
            seen.add(g.world)
        low, high = g.broken.interval
        how = g.safety + ("" if g.objective == RECIPE else f", {g.objective}")
        answers = " / ".join(str(count) for count in g.answers.values())
        lines.append(
            f"| {g.world} | {g.deployments} | {how} | {_both(g.novelty[:, -1])} | "
            f"{_both(g.value[:, -1])} | {g.promised.min():.3f} | {g.broken.count} of "
            f"{g.broken.n} ({low:.3f} to {high:.3f}) | {answers} |"
        )
    return lines


def _both(values: FloatArray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f})"


def _worthless(campaigns: Sequence[Group]) -> list[str]:
    """Does it stop showing what never earns anything?"""
    own = {
        key: g
        for key, g in by_name(campaigns).items()
        if key[0] == "worthless" and g.deployments > 1
    }
    if not own:
        return []
    lines = [
        "## Worthless novel items: does it stop showing them?",
        "",
        "The certificate never rests on what novel items are hoped to be worth, so the promise is "
        "broken no more often than delta says. What is spent on them is another matter. A share nu "
        "of worthless items costs "
        f"nu times the value of the old part. `{RECIPE}` pays most for the first novelty: a little "
        "of it is worth its price even here, and `most value` pays nothing for it. Means over the "
        "seeds, deployment by deployment; *expected* is the value that was anticipated.",
        "",
        "| objective | K | safety | k | novelty | value | expected | without novel items |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    said = []
    for (_, deployments, safety, objective), g in own.items():
        shown = g.novelty.mean(axis=0)
        old = (g.value / (1 - g.novelty)).mean(axis=0)
        for k in range(deployments):
            lines.append(
                f"| {objective} | {deployments} | {safety} | {k + 1} | {shown[k]:.3f} | "
                f"{g.value[:, k].mean():.3f} | {g.anticipated[:, k].mean():.3f} | {old[k]:.3f} |"
            )
        if deployments == max(group.deployments for group in own.values()):
            none = float((g.novelty[:, -1] < NONE).mean())
            said.append(
                f"- {objective}, K = {deployments}, {safety}: novelty {shown[0]:.3f} in the first "
                f"deployment, {shown[-1]:.3f} in the last; {none:.0%} of the campaigns showed no "
                f"novel item in the last one. It expected {g.anticipated[:, -1].mean():.3f} of "
                f"V(pi0) and got {g.value[:, -1].mean():.3f}: {_learned(g)}."
            )
    return [*lines, "", *said, ""]


def _learned(g: Group) -> str:
    """Whether it stops, in words."""
    first, last = (float(g.novelty[:, k].mean()) for k in (0, -1))
    if float(g.novelty.max()) < NONE:
        return "it never showed them"
    if last < FEW:
        return "it has stopped showing them"
    if last < first / 2:
        return "it shows them less"
    if float((g.anticipated - g.value)[:, -1].mean()) > FEW:
        return "it goes on showing them, for it still takes them to be worth something"
    return "it goes on showing them, as the objective pays for novelty"


def _refused(results: Sequence[Result]) -> list[str]:
    asked = refusals(results)
    if not asked:
        return []
    lines = [
        "## Propensities of which 20% are wrong by a factor of 2",
        "",
        "Weights are then 5% too large on average (E[1/factor] = .8 + .2 x 1.25 = 1.05), so a "
        "policy worth .905 of pi0 looks like one at the floor: no certificate can hold, and the "
        "logs must be refused. In the plain world. *pi0 itself is wrong*: it says twice or half "
        "the odds in 20% of its (context, action) pairs, and the logs repeat what it says. Power "
        "and false refusals of the test of m/p in many more worlds: "
        "[propensities](../propensities.md).",
        "",
        "| who is asked, about what | rows | refused |",
        "|---|--:|--:|",
    ]
    messages: dict[str, str] = {}
    for (what, rows), said in asked.items():
        refused = [message for message in said if message is not None]
        lines.append(f"| {what} | {rows:,} | {len(refused)} of {len(said)} |")
        if refused:
            messages.setdefault(what.split(",")[0], refused[0])
    lines.append("")
    for what, message in messages.items():
        lines += [f"What {what} says, for example:", "", f"> {message}", ""]
    missed = [
        what
        for (what, _), said in asked.items()
        if what.startswith("run_exploration") and None in said
    ]
    if missed:
        lines += [
            "**Not refused by itself:** "
            + "; ".join(missed)
            + ". `run_exploration` holds each propensity against the policy that it was given, "
            "and cannot notice that this policy is not the one that drew the actions. "
            "`require_propensities` can: call it first wherever pi0 is a copy or a "
            "reconstruction of what was served.",
            "",
        ]
    return lines


BLUE, GREEN, BROWN, RED, GREY = "#1f5a96", "#2e7d4f", "#8a5a00", "#b3312c", "#6b7280"

COLOURS = {1: BROWN, 2: GREEN, 5: BLUE}

MARKERS = {"each": "o", "cumulative": "^"}

PLACES = ((1, "each"), (2, "each"), (2, "cumulative"), (5, "each"), (5, "cumulative"))

DODGE = 0.01
"""By so much in novelty the marks of neighbouring kinds are set apart, or they would hide each
other at the level that is certain and at one half."""

TITLES = {
    "plain": "plain",
    "worthless": "worthless novel items",
    "rare rewards": "a reward in 1,000",
    "deterministic": "pi0 almost deterministic",
}


def figure(results: Sequence[Result]) -> Figure:
    """Each campaign's last deployment as a small mark, their means as large ones.

    Marks of the five kinds are set apart a little. In the mode `cumulative` the promise is about
    the mean over the deployments, so single deployments may lie below the floor there.
    """
    from matplotlib.figure import Figure as NewFigure

    campaigns = [g for g in groups(results) if g.runs and g.objective == RECIPE]
    drawn = NewFigure(figsize=(10.5, 7.6), layout="constrained")
    for axis, name in zip(drawn.subplots(2, 2).ravel(), WORLDS, strict=True):
        own = [g for g in campaigns if g.world == name]
        for group in own:
            _marks(axis, group)
        _frame(axis, own, TITLES[name])
    drawn.legend(handles=_handles(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return drawn


def _marks(axis: Axes, group: Group) -> None:
    place = PLACES.index((group.deployments, group.safety))
    x, y = group.novelty[:, -1] + DODGE * (place - 2), group.value[:, -1]
    colour, marker = COLOURS[group.deployments], MARKERS[group.safety]
    axis.scatter(x, y, s=16, marker=marker, color=colour, alpha=0.3, lw=0, zorder=2)
    axis.scatter(
        x.mean(), y.mean(), s=85, marker=marker, color=colour, edgecolors="white", zorder=4
    )


def _frame(axis: Axes, own: Sequence[Group], title: str) -> None:
    values = np.concatenate([[0.95, 1.0], *(g.value[:, -1] for g in own)])
    room = 0.06 * float(values.max() - values.min())
    low, high = float(values.min()) - room, float(values.max()) + room
    axis.axhspan(low - 1, FLOOR, color=RED, alpha=0.05, lw=0)
    axis.axhline(FLOOR, color=RED, ls="--", lw=1.1, zorder=1)
    axis.axhline(1.0, color=GREY, ls=":", lw=0.9, zorder=1)
    axis.axvline(1 - FLOOR, color=GREY, ls="-.", lw=0.9, zorder=1)
    naive = [run["naive_value"] for g in own for run in g.runs]
    if naive:
        axis.scatter(
            1 - FLOOR, np.mean(naive), s=75, marker="s", color=GREY, edgecolors="white", zorder=5
        )
    axis.set(
        title=title,
        xlim=(-0.03, 0.54),
        ylim=(low, high),
        xlabel="novelty of the last deployment",
        ylabel="true value / V(pi0)",
    )
    axis.spines[["top", "right"]].set_visible(False)


def _handles() -> list[object]:
    from matplotlib.lines import Line2D

    marks = [("K = 1", BROWN, "o")]
    for k in (2, 5):
        marks += [(f"K = {k}, {how}", COLOURS[k], marker) for how, marker in MARKERS.items()]
    marks.append(("Naive Safe Exploration", GREY, "s"))
    lines = [("floor", RED, "--"), ("V(pi0)", GREY, ":"), ("level that is certain", GREY, "-.")]
    return [
        *(Line2D([], [], ls="none", marker=m, ms=8, color=c, label=name) for name, c, m in marks),
        *(Line2D([], [], color=c, ls=style, lw=1.2, label=name) for name, c, style in lines),
    ]
