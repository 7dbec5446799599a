"""The audit's page and figure: how often each kind of certificate was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

from depsue_research.audit import campaigns, paper, rollbacks, shopping, units, verdicts
from depsue_research.audit.answers import DELTA, GROUPS, Group, Tally
from depsue_research.audit.worlds import MISS

ALPHA = 0.01
"""Of the test against delta, over all kinds of a group together (Bonferroni)."""

COLOURS = {
    "normal": "#1f5a96",
    "betting": "#2e7d4f",
    "smoothing": "#8a5a00",
    "hcope": "#7b3f98",
    "central limit": "#6b7280",
}
OTHER, RED = "#374151", "#b3312c"

HEADINGS: dict[Group, str] = {
    "strict": "Strict: by the rules",
    "tempting": "Tempting: the same attacks without the rule",
    "paper": "Paper: Eq. 4, Algorithm 1 and Eq. 9 as published",
    "what if": "What if: the paper's with a bound that has no slack",
}


def write(every: Sequence[Tally], folder: Path, wanted: tuple[int, int]) -> None:
    """Write the page and the figure.

    Args:
        every: what came of every kind.
        folder: where.
        wanted: replications of one-shot verdicts and of whole campaigns that were asked for.
    """
    (folder / "audit.md").write_text(page(every, wanted), encoding="utf-8")
    draw(every, folder / "audit.png")


def draw(every: Sequence[Tally], path: Path) -> None:
    """Write the figure of the strict and the tempting kinds; few colours keep it light."""
    image = BytesIO()
    shown = [tally for tally in every if tally.group in ("strict", "tempting")]
    figure(shown or every).savefig(image, dpi=72)
    Image.open(image).convert("RGB").quantize(64).save(path, optimize=True)


def page(every: Sequence[Tally], wanted: tuple[int, int]) -> str:
    """The page, as Markdown."""
    command = f"depsue-research audit --replications {wanted[0]} --campaigns {wanted[1]}"
    lines = [
        "# The audit: how often certificates are wrong",
        "",
        "Every kind of certificate is asked for, again and again, in worlds of which everything is "
        "known and against users who try to get a certificate that they should not get. A "
        "certificate is wrong if it passes while what it promises is false. A refusal is no error. "
        f"delta is {DELTA:g}. Intervals are exact (Clopper and Pearson, 95%).",
        "",
        f"**{verdict(every)}**",
        "",
        f"Made by `{command}`. Finished replications are lines of `audit.jsonl` and are not run "
        "again: the same command goes on where it was interrupted, `--only NAMES` runs some of "
        "them, and `--fresh` forgets what was counted (needed after a change of the code).",
        "",
        doses(every, wanted),
        "",
        "![error rates with exact intervals, delta marked](audit.png)",
        "",
        "## What the tempting rules do",
        "",
        *teeth(every),
        "",
    ]
    for group in GROUPS:
        if any(tally.group == group for tally in every):
            lines += [f"## {HEADINGS[group]}", "", *table(every, group), ""]
    return "\n".join([*lines, *NOTES]) + "\n"


def verdict(every: Sequence[Tally]) -> str:
    """What came out for strict certificates, in a sentence."""
    strict = [tally for tally in every if tally.group == "strict"]
    if not strict:
        return "No strict kind was run."
    above = exceeding(every, "strict")
    if above:
        names = "; ".join(f"{t.kind} ({t.variant}), {t.rate:.3f}" for t in above)
        return f"{len(above)} of {len(strict)} strict kinds exceed delta: {names}."
    most = max(strict, key=lambda tally: tally.rate)
    wrong, n = sum(tally.wrong for tally in strict), sum(tally.n for tally in strict)
    return (
        f"None of {len(strict)} strict kinds exceeds delta = {DELTA:g}: {wrong:,} of {n:,} "
        f"certificates asked for were wrong, and the largest rate of a kind is {most.rate:.3f} "
        f"({most.wrong} of {most.n:,}: {most.kind}, {most.variant})."
    )


def exceeding(every: Sequence[Tally], group: Group) -> list[Tally]:
    """Kinds of a group whose errors would be rarer than 1% for any of them, were delta kept."""
    own = [tally for tally in every if tally.group == group]
    return [tally for tally in own if tally.p_value < ALPHA / len(own)]


def doses(every: Sequence[Tally], wanted: tuple[int, int]) -> str:
    """How often things were run, and how often they were to be."""
    own = [tally for tally in every if tally.group in ("strict", "tempting")]
    whole = [t.n for t in own if t.kind.startswith("campaigns,")]
    files = [t.n for t in own if t.kind.startswith("campaigns with files")]
    others = [t.n for t in own if not t.kind.startswith("campaigns")]
    words, short = [], False
    for name, numbers, most in (
        ("one-shot verdicts", others, wanted[0]),
        ("whole campaigns", whole, wanted[1]),
        ("campaigns with files and ledger", files, -(-wanted[1] // 10)),
    ):
        low, high = min(numbers, default=0), max(numbers, default=0)
        count = f"{high:,}" if low == high else f"{low:,} to {high:,}"
        words.append(f"{count} replications of {name}")
        short = short or low < most
    text = f"This page has {', '.join(words)}."
    if short:
        text += (
            f" {wanted[0]:,}, {wanted[1]:,} and {-(-wanted[1] // 10):,} were asked for: the run "
            "was cut short, and the same command goes on with it."
        )
    return text


def teeth(every: Sequence[Tally]) -> list[str]:
    """What errs without the rule, a line for each kind."""
    lines = []
    above = {(t.kind, t.variant) for t in exceeding(every, "tempting")}
    for tally in every:
        if tally.group == "tempting":
            words = "above delta" if (tally.kind, tally.variant) in above else "not above delta"
            lines.append(f"- {tally.kind} ({tally.variant}): {tally.rate:.1%}, {words}.")
    return lines or ["None was run."]


def table(every: Sequence[Tally], group: Group) -> list[str]:
    """The lines of one group, as Markdown."""
    lines = [
        "| kind | variant | errors | rate | 95% interval | right | refused | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    above = {(t.kind, t.variant) for t in exceeding(every, group)}
    for tally in every:
        if tally.group == group:
            low, high = tally.interval
            word = "**above delta**" if (tally.kind, tally.variant) in above else ""
            lines.append(
                f"| {tally.kind} | {tally.variant} | {tally.wrong:,} of {tally.n:,} | "
                f"{tally.rate:.4f} | {low:.4f} to {high:.4f} | {tally.right:,} | "
                f"{tally.refused:,} | {word} |"
            )
    return lines


def figure(every: Sequence[Tally]) -> Figure:
    """A dot and its interval for each rate; kinds are lines, bounds colours."""
    kinds = list(dict.fromkeys((tally.group, tally.kind) for tally in every))
    gaps = {group: 1.6 * place for place, group in enumerate(GROUPS)}
    at = {key: -place - gaps[key[0]] for place, key in enumerate(kinds)}
    drawn = Figure(figsize=(10, 0.2 * len(kinds) + 2.4), layout="constrained")
    axis = drawn.subplots()
    axis.set_xscale("function", functions=(_root, np.square))
    for (group, kind), height in at.items():
        own = [tally for tally in every if (tally.group, tally.kind) == (group, kind)]
        shifts = 0.2 * ((len(own) - 1) / 2 - np.arange(len(own)))
        for tally, shift in zip(own, shifts, strict=True):
            colour, y = COLOURS.get(tally.variant, OTHER), height + float(shift)
            axis.plot(tally.interval, [y, y], color=colour, lw=1.2)
            axis.plot(tally.rate, y, "o", ms=3.5, color=colour, clip_on=False, zorder=3)
        axis.axhline(height - 0.5, color="#e5e7eb", lw=0.5, zorder=0)
    for group in dict.fromkeys(group for group, _ in kinds):
        top = max(height for key, height in at.items() if key[0] == group)
        axis.text(0.0, top + 0.62, group, fontweight="bold", fontsize=9, va="bottom")
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
    axis.set_yticks(list(at.values()), [kind for _, kind in at], fontsize=7.5)
    axis.set(
        xlim=(0, min(1.0, 1.15 * max(tally.interval[1] for tally in every))),
        ylim=(min(at.values()) - 0.7, 1.8),
        xlabel="share of replications with a wrong certificate (square-root scale)",
    )
    axis.tick_params(axis="y", length=0, pad=8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    marks = [
        Line2D([], [], color=colour, marker="o", ms=4, label=name)
        for name, colour in {**COLOURS, "by round, or other": OTHER}.items()
    ]
    drawn.legend(
        handles=marks, loc="outside lower center", ncols=len(marks), frameon=False, fontsize=8
    )
    return drawn


def _root(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> object:
    return np.sqrt(np.maximum(values, 0))


NOTES = [
    "## What was simulated",
    "",
    "Six contexts, six supported and two novel actions, rewards 0 or 1. A candidate of a one-shot "
    f"verdict misses its floor by {MISS:.1%}, so every certificate of it is an error and little "
    "but the bound stands in the way. Campaigns learn their own candidates, want the most novelty, "
    "and climb a list of levels until one fails: an error is a level that passed and is below what "
    'was promised. The test against delta is one-sided and exact; "above delta" means that so '
    f"many errors have a chance below {ALPHA:g}, over all kinds of the group together.",
    "",
    "**One-shot verdicts**",
    "",
    f"- *relative floor, absolute floor*: {verdicts.ROWS:,} rows, 80% of them certifying. *Rare "
    "rewards*: one decision in a hundred is rewarded. *Novel mass*: a third of the decisions show "
    "novel items. *Heavy weights*: one action has most of the probability, and weights reach 16.",
    "- *3 promises*: two hold by far, the first is missed; each is tested at the full delta.",
    f"- *retries*: {verdicts.ATTEMPTS} candidates on the same certifying rows; counted, attempt j "
    "is tested at delta 2^-j.",
    "- *sorted by country*: the file is sorted by contexts whose reward rates run from .05 to .9. "
    "Strict bets are constants from the select fold; the tempting ones learn from the rows "
    "before.",
    f"- *round ended by choice*: somebody looks {verdicts.LOOKS} times at all certifying rows and "
    "ends the round when a fixed-n bound would pass. Declared so, `normal` is refused.",
    "- *cumulative, K = 5*: the fifth deployment spends all the margin of four and a little more. "
    "Eq. 9 takes on-policy means as exact; strict pays for them.",
    "- *control variate*: by a right and by a senseless reward model. *Weights over groups*: the "
    "declared assumption is true.",
    "",
    "**Shopping**",
    "",
    "- *name shopping*: of 100 names, the one whose learn and select rows look worst. Strict "
    "folds do not depend on a name.",
    "- *declaration shopping*: after a verdict that failed the same rows come back with r_max "
    "1.0000001, a feature + 1e-6, one more item, one more column, a row id as unit, other "
    "fractions, fewer rows, another order. Without retries all are refused; with retries all are "
    "counted. (A file without times that is rewritten, rows dropped and sorted anew, cannot be "
    "known again: that rows are as they were logged is an assumption on the certificate.)",
    "- *unit shopping*: other units before the first verdict. *Appended rows*: a certificate is "
    f"asked for again after rows were appended; {shopping.LOOKS} times by the tempting rule.",
    "- *estimated propensities*: by frequencies that leave the context out. They make a "
    "certificate of another kind, never a strict one, which counts as a refusal here.",
    "",
    "**Units**",
    "",
    f"- *endogenous sessions*: {units.SESSIONS:,} sessions that go on while the user clicks. With "
    '"first row" the candidate misses the floor of first rows by 0.1%; with "all rows" it is '
    f"worth .805 of pi0 over sessions where {units.BOLD_FLOOR:g} is promised, and the test of the "
    "declaration refuses it.",
    f"- *users who come back*: {units.USERS} users in each of {units.ROUNDS} rounds; what is "
    "learned knows some of them. Strict: each user certifies once, and teaches after that.",
    "",
    "**Campaigns**",
    "",
    f"- Each replication draws a world; {campaigns.ROWS:,} rows in the first logs and in each "
    "round (20,000 where rewards are rare). *Worthless* new items never earn anything; *lucky* "
    "ones earn half of what the others do, and a few look good by luck.",
    "- *cumulative*: the true sum over what was really served, plus the declared decisions of the "
    "coming round; with an absolute floor what was realised so far plus what is expected.",
    "- *debts*: ten times the declared decisions were served below the floor; the next policy is "
    "0.1% short of what that debt asks for. The tempting rule clips the account at zero.",
    f"- *pooled slices*: {campaigns.POOLED_ROUNDS} rounds of {campaigns.POOLED_ROWS:,} rows, in "
    "which a policy learns by heart which of two equal items each kind of user liked; half of the "
    "certifying rows are reserved. By the tempting rule reserved rows teach. *Pooled* campaigns "
    "have 3 rounds and reserve 0.3.",
    "- *late drift*: `no_drift` is declared, and what pi0 earns falls by 40%, or rises by 60%, in "
    "the rows of round 1. The tempting rule goes on with the ceiling after it was refuted.",
    "- *rounds ended by choice*: each round is ended when its mean reward looks best, in 20 looks.",
    "- *campaigns with files*: `create`, `train`, `certify`, `deploy`, `observe` and `rollback` "
    f"with {rollbacks.LARGER:,} rows. A rollback is an error if it is allowed and the policy is "
    "below the floor. *Wrong propensities*: a fifth is doubled or halved; the logs are refused.",
    "",
    "**The paper's kinds**",
    "",
    f"- {paper.LARGE:,} rows, half of them S2, on counts of (context, action) cells. *C estimated* "
    "is .95 of the mean reward of the same logs, as in the paper, so it moves with the bound.",
    "- Algorithm 1 is run with a softmax over cells, the full gradient of S1, and 600 larger steps "
    "in place of 10,000. In the *flat* world a fixed share of its policy is novel, so that nothing "
    "it learns reaches the floor. *Last passing policy* is our option, not the paper's.",
    "- *Best of many by S2* chooses, by the bound on S2 itself, among policies none of which "
    "reaches the floor: what adaptive use of S2 can do at worst. Algorithm 1 looks at S2 "
    f"{max(paper.MANY):,} times. *Spread* is how far the logits of the policies are from pi0's.",
    "- *central limit* puts mean - 1.645 standard errors in the place of Eq. 4: it shows how much "
    "of the paper's safety is Eq. 4's slack.",
    "",
    "Worlds were set after short pilot runs, so that the tempting rules err where they can be seen "
    "to: rows were added and clips set just above the weights, for wide bounds hide everything.",
]
