"""The page about the hostile worlds, as Markdown; every figure in it is computed from results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depsue.data.checks import FloatArray
from depsue_research.hostile.campaigns import DELTA, FLOOR, RECIPE
from depsue_research.hostile.store import Result
from depsue_research.hostile.summary import Broken, Group, by_name, groups, pooled, refusals
from depsue_research.hostile.worlds import WORLDS

LEVEL = 0.01
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
    found = groups(results)
    lines = [
        "# Hostile worlds",
        "",
        f"Made by `{command}`; every campaign is a line of `hostile.jsonl`. {_seeds(found)}",
        "",
        f"Certified exploration as the recipe of the paper's experiment has it (floor {FLOOR:g} of "
        f"V(pi0), delta {DELTA:g} a deployment, the objective `{RECIPE}`, no drift declared, "
        "at most half of the decisions novel), with small networks for q-hat, in worlds that are "
        "against it. Values are exact and over V(pi0); novelty is exact too.",
        "",
        *_worlds(found),
        "",
        *_verdict(found),
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
        *_table(found),
        "",
        "Naive Safe Exploration shows novel items in 5% of the decisions, uniformly, and cannot "
        "fall below the floor, whatever they are worth.",
        "",
        *_worthless(found),
        *_refused(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _seeds(found: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) + group.refused for group in found})
    if not counts:
        return "No campaign is finished yet."
    if len(counts) == 1:
        return f"Seeds 0 to {counts[0] - 1}: {counts[0]} replications, each a world of its own."
    return f"{counts[0]} to {counts[-1]} replications, each a world of its own: not all are done."


def _worlds(found: Sequence[Group]) -> list[str]:
    lines = ["| world | what is hostile | V(pi0), mean | rows in all |", "|---|---|--:|--:|"]
    for name, kind in WORLDS.items():
        base = [run["logging_value"] for g in found if g.world == name for run in g.runs]
        shown = f"{np.mean(base):.4f}" if base else "–"
        size = f"{kind.settings.supported} + {kind.settings.novel} items"
        lines.append(f"| {name} | {kind.words}; {size} | {shown} | {kind.rows:,} |")
    return lines


def _verdict(found: Sequence[Group]) -> list[str]:
    lines = []
    for name, broken in pooled(found).items():
        if broken.n:
            lines.append(f"- {POOLS[name]}: {_broken(broken)}; {_test(broken)}.")
    refused = sum(group.refused for group in found)
    lines.append(f"- Campaigns that ended with an error: {refused}.")
    return lines


def _broken(broken: Broken) -> str:
    low, high = broken.interval
    return f"{broken.count} of {broken.n:,} promises broken ({low:.3f} to {high:.3f})"


def _test(broken: Broken) -> str:
    said = "passes" if broken.p_value >= LEVEL else "**fails**"
    return f"{said} the one-sided binomial test against delta (p = {broken.p_value:.2g})"


def _table(found: Sequence[Group]) -> list[str]:
    lines = [
        "| world | K | safety | novelty | value | promised, worst | broken | answers |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    seen: set[str] = set()
    for g in found:
        if not g.runs:
            continue
        if g.world not in seen:
            naive = np.array(
                [run["naive_value"] for h in found if h.world == g.world for run in h.runs]
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


def _worthless(found: Sequence[Group]) -> list[str]:
    """Does it stop showing what never earns anything?"""
    own = {
        key: g for key, g in by_name(found).items() if key[0] == "worthless" and g.deployments > 1
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
        if deployments == max(one.deployments for one in own.values()):
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
    found = refusals(results)
    if not found:
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
    for (what, rows), said in found.items():
        told = [one for one in said if one is not None]
        lines.append(f"| {what} | {rows:,} | {len(told)} of {len(said)} |")
        if told:
            messages.setdefault(what.split(",")[0], told[0])
    lines.append("")
    for what, message in messages.items():
        lines += [f"What {what} says, for example:", "", f"> {message}", ""]
    missed = [
        what
        for (what, _), said in found.items()
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
