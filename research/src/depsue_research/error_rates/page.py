"""The page and the figure of error rates: how often each kind of certificate is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depsue_research.error_rates import GROUPS, ErrorRate
from depsue_research.error_rates.paper import LARGE, MANY
from depsue_research.error_rates.rates import DELTA
from depsue_research.error_rates.strict import BASE, FEWER, ROWS
from depsue_research.error_rates.worlds import MISS

COLOURS = {
    "normal": "#1f5a96",
    "betting": "#2e7d4f",
    "smoothing": "#8a5a00",
    "hcope": "#7b3f98",
    "central limit": "#6b7280",
}

RED = "#b3312c"

ALPHA = 0.01
"""Of the binomial test against delta."""

HEADINGS = {
    "strict": "Strict: by the rules of `depsue.certificates`",
    "paper": "Paper: Eq. 4, Algorithm 1 and Eq. 9 as published",
    "naive": "Naive: attempts not counted",
    "what if": "What if: the paper's with a bound that has no slack",
}


def write(rates: Sequence[ErrorRate], folder: Path, command: str) -> None:
    """Write the page and the figure."""
    (folder / "certificates.md").write_text(page(rates, command), encoding="utf-8")
    figure(rates).savefig(folder / "certificates.png", dpi=130)


def page(rates: Sequence[ErrorRate], command: str) -> str:
    """The page, as Markdown."""
    lines = [
        "# How often certificates are wrong",
        "",
        f"Made by `{command}`.",
        "",
        "A certificate is wrong if it is issued for a policy whose true value is below the floor. "
        f"Here every candidate misses the floor by {MISS:.1%} (Algorithm 1 may learn any "
        "policy, and errs where the one it certifies is below the floor), novel actions are "
        "worthless, and weights are known exactly: little but the bound stands in the way. "
        f"delta is {DELTA:g}, the floor .95 of pi0's value. The p-value is that of a one-sided "
        f"binomial test: a kind passes unless its errors have a chance below {ALPHA:g} if the "
        "true rate were delta. Intervals are Clopper and Pearson's.",
        "",
        *summary(rates),
        "",
        "![error rates with intervals, delta marked](certificates.png)",
        "",
    ]
    for group in GROUPS:
        lines += [f"## {HEADINGS[group]}", "", *table(rates, group), ""]
    return "\n".join([*lines, *NOTES]) + "\n"


def summary(rates: Sequence[ErrorRate]) -> list[str]:
    """What came out, a sentence for each group."""
    lines = []
    for group in GROUPS:
        own = [rate for rate in rates if rate.group == group]
        above = [rate for rate in own if rate.p_value < ALPHA]
        line = f"- {group}: {len(own) - len(above)} of {len(own)} pass"
        if above:
            line += "; above delta: "
            line += "; ".join(f"{rate.kind} ({rate.bound}), {rate.rate:.3f}" for rate in above)
        elif own:
            most = max(own, key=lambda rate: rate.rate)
            line += f"; the largest rate is {most.rate:.4f} ({most.kind}, {most.bound})"
        lines.append(line + ".")
    return lines


def table(rates: Sequence[ErrorRate], group: str) -> list[str]:
    """The lines of one group, as Markdown."""
    lines = [
        "| kind | bound | errors | rate | 95% interval | p against delta | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for rate in rates:
        if rate.group == group:
            low, high = rate.interval
            lines.append(
                f"| {rate.kind} | {rate.bound} | {rate.errors:,} of {rate.n:,} | {rate.rate:.4f} | "
                f"{low:.4f} to {high:.4f} | {chance(rate.p_value)} | {verdict(rate)} |"
            )
    return lines


def chance(p: float) -> str:
    """A p-value as text."""
    return f"{p:.2g}" if p >= 1e-4 else "< .0001"


def verdict(rate: ErrorRate) -> str:
    """How the test against delta comes out, in words."""
    return "passes" if rate.p_value >= ALPHA else "**above delta**"


def figure(rates: Sequence[ErrorRate]) -> Figure:
    """A dot and its interval for each rate; kinds are lines, bounds colours."""
    kinds = list(dict.fromkeys((rate.group, rate.kind) for rate in rates))
    gaps = {group: 1.6 * place for place, group in enumerate(GROUPS)}
    at = {key: -place - gaps[key[0]] for place, key in enumerate(kinds)}
    drawn = Figure(figsize=(10, 0.31 * len(kinds) + 2.2), layout="constrained")
    axis = drawn.subplots()
    axis.set_xscale("function", functions=(_root, np.square))
    for (group, kind), height in at.items():
        own = [rate for rate in rates if (rate.group, rate.kind) == (group, kind)]
        shifts = 0.2 * ((len(own) - 1) / 2 - np.arange(len(own)))
        for rate, shift in zip(own, shifts, strict=True):
            colour, y = COLOURS[rate.bound], height + float(shift)
            axis.plot(rate.interval, [y, y], color=colour, lw=1.4)
            axis.plot(rate.rate, y, "o", ms=4.5, color=colour, clip_on=False, zorder=3)
        axis.axhline(height - 0.5, color="#e5e7eb", lw=0.6, zorder=0)
    for group in dict.fromkeys(group for group, _ in kinds):
        top = max(height for key, height in at.items() if key[0] == group)
        axis.text(0.0, top + 0.62, group, fontweight="bold", fontsize=10, va="bottom")
    axis.axvline(DELTA, color=RED, ls="--", lw=1.2)
    axis.annotate(
        f"delta = {DELTA:g}",
        (DELTA, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 2),
        textcoords="offset points",
        color=RED,
        fontsize=9,
    )
    ticks = [0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_yticks(list(at.values()), [kind for _, kind in at], fontsize=9)
    axis.set(
        xlim=(0, min(1.0, 1.15 * max(rate.interval[1] for rate in rates))),
        ylim=(min(at.values()) - 0.7, 1.8),
        xlabel="share of replications with a wrong certificate (square-root scale)",
    )
    axis.tick_params(axis="y", length=0, pad=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    used = [bound for bound in COLOURS if any(rate.bound == bound for rate in rates)]
    marks = [
        Line2D([], [], color=COLOURS[bound], marker="o", ms=4.5, label=bound) for bound in used
    ]
    drawn.legend(
        handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=9
    )
    return drawn


def _root(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> object:
    return np.sqrt(np.maximum(values, 0))


NOTES = [
    "## What was simulated",
    "",
    "Six contexts, six supported and two novel actions, rewards 0 or 1. In *rare rewards* about "
    "one decision in a hundred is rewarded; in *novel mass* the candidate shows novel actions in "
    "a third of its decisions or so; with *sharp pi0* one action has most of the probability; in "
    "the *flat* world all supported actions are worth the same, so no policy can do better.",
    "",
    f"- Strict kinds run through `certify` on fresh logs: {ROWS:,} rows for one floor, "
    f"{FEWER:,} of the world *{BASE}* for promises, units, levels and retries, 80% of them "
    "certifying; *20 splits* uses the terms, the bound and `Reads` without `certify`. "
    "hcope needs terms that keep weights and rewards apart, so it has no paired floor.",
    "- Three promises: two hold by far, the first is missed. Certificates need all three, and each "
    "is tested at the full delta: only the one that is missed can err.",
    "- Units: 1 to 8 rows each, more in some contexts, with luck of their own.",
    "- A list of 20 levels: an error is a certified level that is below the floor; the first ten "
    "are above it.",
    "- Counted: attempt j at delta 2^-j, as `Reads(retries=True)` does. Not counted: every attempt "
    "at delta. *5 candidates* are on the same certifying rows, *20 splits* are random halves of "
    "the same logs for one candidate.",
    f"- Cumulative, K = 5: four deployments of {FEWER // 2:,} decisions earned a margin; the fifth "
    "spends all of it and a little more. Eq. 9 takes the four on-policy means as exact, and C too "
    "unless it is known; strict pays for both.",
    f"- The paper's other kinds have {LARGE:,} rows, half of them S2. *C estimated* is .95 of the "
    "mean reward of the same logs, as in the paper, so it moves with the bound.",
    "- Algorithm 1 is run with a softmax over (context, action) cells, the full gradient of S1 in "
    "place of minibatches, and 600 steps with larger step sizes in place of 10,000. In the flat "
    "world a fixed share of its policy is novel, so that nothing it learns reaches the floor. "
    "*Last passing policy* is our option, not the paper's.",
    "- *Best of many by S2* chooses, by the bound on S2 itself, among policies none of which "
    "reaches the floor: what adaptive use of S2 can do at worst. The most, "
    f"{max(MANY):,}, is how often Algorithm 1 looks at S2. *Spread* is how far the logits of the "
    "policies are from pi0's. Algorithm 1 itself chooses only lambda by S2.",
    "- *central limit* puts mean - 1.645 standard errors in the place of Eq. 4. It is no kind of "
    "the product: it shows how much of the paper's safety is Eq. 4's slack.",
    "- How the worlds were set: after short pilot runs. At first candidates were 0.5% below the "
    "floor; then, at 0.1% with 6,000 rows and clip 20, strict kinds next to never erred, for the "
    "bounds were too wide there; so rows were added and clips set just above the weights, such "
    "that errors can be seen. The paper's kinds were given more rows for the same "
    "reason. For best of many, 1,000 candidates were tried first; 10,000 was added after that, and "
    "both are shown, as are both spreads. Eq. 9's case was built to be hard: a large margin that "
    "the last deployment spends whole.",
]
