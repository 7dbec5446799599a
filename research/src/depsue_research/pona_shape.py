"""PONA against its published shape: what kappa does, where rewards add up over features or do not.

Kishimoto et al. (2026) say that kappa steers how often new actions are chosen, that LCPI finds the
good ones where rewards follow combinations of features, and that overall value is kept. Here q is
a sum over single features (additive) or over pairs of them (pairs), so that `order` 1 is right in
the one world and too low in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.learners import AscentSettings, PonaSettings, combinations, train_pona
from depsue.rewards import fit_linear
from depsue.world import RewardTable, World, softmax_of_logit
from depsue_research.intervals import mean_interval
from depsue_research.kept_cells import Cell, KeptCells

KAPPAS = (0.0, 0.5, 0.8, 0.9, 0.95, 1.0)
CASES = (("additive", 1), ("pairs", 1), ("pairs", 2))
USERS, DIMENSIONS, LEVELS, NEW = 200, 4, 3, 0.25
BETA = 0.5


def world_of(kind: str, seed: int) -> World:
    """81 actions with 4 features of 3 values each, a quarter of them new; q as the kind says."""
    draw = rng.generator(seed, "pona shape", kind)
    features = np.array(list(product(range(LEVELS), repeat=DIMENSIONS)), dtype=np.float32)
    novel = np.zeros(len(features), dtype=bool)
    novel[draw.permutation(len(features))[: int(NEW * len(features))]] = True
    contexts = draw.normal(size=(USERS, 3)).astype(np.float32)
    v = combinations(features, 1 if kind == "additive" else 2)
    z = np.concatenate([np.ones((USERS, 1)), contexts], axis=1)
    q = z @ draw.normal(size=(4, v.shape[1])) @ v.T
    q = (q - q.min()) / (q.max() - q.min())
    catalogue = Catalogue(np.arange(len(features)), novel, features)
    pi0 = softmax_of_logit(contexts, q, BETA, catalogue)
    return World(contexts, RewardTable(q), catalogue, pi0, seed=seed)


def shape(folder: Path, seeds: Sequence[int], rows: int, say: Callable[[str], None]) -> list[Cell]:
    """All cells that are not in cells.jsonl yet; then all cells.

    Args:
        folder: where cells.jsonl is.
        seeds: of the worlds.
        rows: logged.
        say: told of each world that is finished.
    """
    kept = KeptCells(folder, "world", "order", "seed")
    for seed, (kind, order) in product(seeds, CASES):
        if kept.has(kind, order, seed):
            continue
        world = world_of(kind, seed)
        pi0 = world.logging_policy
        logs = world.deploy(pi0, rows, round=0)
        model, base = fit_linear(logs), world.value(pi0)
        ascent = AscentSettings(steps=200)
        found: dict[str, list[float]] = {"kappa": [], "novelty": [], "value": []}
        for kappa in KAPPAS:
            settings = PonaSettings(kappa=kappa, order=order, ascent=ascent)
            policy = train_pona(logs, pi0, model, settings).policy
            value, novelty = world.value_and_novelty(policy)
            found["kappa"].append(kappa)
            found["novelty"].append(novelty)
            found["value"].append(value / base)
        cell = {"world": kind, "order": order, "seed": seed, "rows": rows, **found}
        cell |= {"best_novelty": world.best_novelty(), "best_value": world.best_value() / base}
        kept.add(cell)
        say(f"seed {seed}, {kind}, order {order}: novelty {found['novelty'][-1]:.3f} at kappa 1")
    return kept.cells


def write_page(cells: Sequence[Cell], folder: Path, command: str) -> None:
    """shape.md and shape.png, from the cells."""
    seeds = len({cell["seed"] for cell in cells})
    lines = [
        "# PONA against its published shape",
        "",
        f"Made by `{command}`: {seeds} simulated worlds of either kind,",
        f"{cells[0]['rows']:,} logged rows each. What PONA is, and what it does not promise:",
        "[baselines](../../baselines.md#pona). Intervals are 95%.",
        "",
        f"There are {LEVELS**DIMENSIONS} actions with {DIMENSIONS} features of {LEVELS} values, a "
        "quarter of them new; new ones are as",
        "good as old ones. Rewards are sums over single features (*additive*) or over pairs of",
        "them (*pairs*). `order` is what LCPI believes.",
        "",
        "- **kappa steers the share of new actions**, as published: from none to what LCPI finds",
        "  right, most of it above 0.9.",
        "- **Value is kept where `order` is right**, and lost where it is too low: the more new",
        "  actions, the more of it.",
        "",
        "| world | order | kappa | share of new actions | V / V(pi0) |",
        "|---|--:|--:|--:|--:|",
    ]
    for kind, order in CASES:
        mine = [c for c in cells if (c["world"], c["order"]) == (kind, order)]
        for place, kappa in enumerate(KAPPAS):
            novelty, value = ([c[key][place] for c in mine] for key in ("novelty", "value"))
            lines.append(
                f"| {kind} | {order} | {kappa:g} | {mean_interval(novelty)} "
                f"| {mean_interval(value)} |"
            )
        best = mean_interval([c["best_novelty"] for c in mine])
        most = mean_interval([c["best_value"] for c in mine])
        lines.append(f"| {kind} | the best of all policies | | {best} | {most} |")
    lines += ["", "![share of new actions and value against kappa](shape.png)", ""]
    (folder / "shape.md").write_text("\n".join(lines), encoding="utf-8")
    _figure(cells).savefig(folder / "shape.png", dpi=110)


def _figure(cells: Sequence[Cell]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    words = {"novelty": "share of new actions", "value": "V / V(pi0)"}
    for axis, (key, word) in zip(axes, words.items(), strict=True):
        for place, (kind, order) in enumerate(CASES):
            mine = [c for c in cells if (c["world"], c["order"]) == (kind, order)]
            table = np.array([c[key] for c in mine])
            mean, error = table.mean(axis=0), table.std(axis=0) / len(table) ** 0.5
            label = f"{kind}, order {order}"
            axis.plot(KAPPAS, mean, color=f"C{place}", marker="o", ms=4, label=label)
            axis.fill_between(KAPPAS, mean - 2 * error, mean + 2 * error, alpha=0.15, lw=0)
        axis.set(xlabel="kappa", ylabel=word)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return figure
