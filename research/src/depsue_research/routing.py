"""Routers between language models: a new model is a novel action with a price.

Two tables in which every prompt was answered by every model, so that the truth is known: prompts
with the score of each answer, and with what it cost. One model is new, a current router (pi0)
chooses among the others, and every method has K rounds to bring the new one in. Quality has a
floor, cost a ceiling. Policies are judged on the prompts that came up, and on others.

dc.parquet: prompts x 9 models from LLMRouter (ulab-uiuc, MIT); cost is the model's price per token.
pareto.parquet: prompts x 4 models from ParetoBandit (Apache-2); cost is dollars a request. Neither
is shipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, Mask
from depsue.data.requests import Requests
from depsue.errors import DataError, require
from depsue.exploration import ExploreSettings
from depsue.policies import BasePolicy, ScoreTable, SoftmaxOfScores
from depsue.promises import Floor, Promise
from depsue.rewards import RewardSettings
from depsue.world import RewardTable, World
from depsue_research.data_files import require_files
from depsue_research.intervals import clopper_pearson, mean_interval
from depsue_research.kept_cells import Cell, KeptCells
from depsue_research.rivals import METHODS as WITHOUT_COST
from depsue_research.rivals import PRICED, RivalSettings, played

CURE = "put dc.parquet, pareto.parquet and models.json below $DEPSUE_DATA/routing, or name --data"
CAPS = {"dc": 0.9, "pareto": 0.05}
"""The most that a request may cost: dollars per million tokens, and dollars a request."""
TABLES = ("dc", "pareto")
METHODS = (*WITHOUT_COST[:3], PRICED, *WITHOUT_COST[3:])
ON_COST = 0.1
"""How much more than pi0 a policy may spend."""
DEVELOPMENT = 0.4
"""Share of prompts, by a hash, on which pi0 was fitted and settings were chosen."""
SHARP, EVEN = 6.0, 0.3
"""pi0: softmax of SHARP (predicted score - EVEN x cost / cap) over the known models."""


@dataclass(frozen=True, eq=False)
class Routing:
    """u prompts and A models.

    Args:
        name: of the table.
        models: (A,) names.
        prompts: (u,) hashes in [0, 1).
        contexts: (u, d) embeddings.
        scores: (u, A) in [0, 1].
        costs: (u, A) as shares of the cap, in [0, 1].
        features: (A, k) what is known of a model before it answers: its mean cost and its place by
            cost.
    """

    name: str
    models: tuple[str, ...]
    prompts: FloatArray
    contexts: FloatArray
    scores: FloatArray
    costs: FloatArray
    features: FloatArray

    def take(self, kept: Mask) -> Routing:
        """Some of the prompts."""
        return replace(
            self,
            prompts=self.prompts[kept],
            contexts=self.contexts[kept],
            scores=self.scores[kept],
            costs=self.costs[kept],
        )


def read_routing(folder: str | Path, name: str) -> Routing:
    """One of the two tables, checked."""
    folder = Path(folder)
    require(name in TABLES, f"a table is one of {', '.join(TABLES)}", found=name)
    require_files(folder, (f"{name}.parquet", "models.json"), "the routing data", CURE)
    table = pl.read_parquet(folder / f"{name}.parquet")
    prefix = "score:" if name == "dc" else "reward:"
    models = tuple(c.removeprefix(prefix) for c in table.columns if c.startswith(prefix))
    if len(models) < 3:
        raise DataError(
            "a routing table has a column of scores for each of three models or more",
            column=f"{prefix}...",
            found=", ".join(table.columns[:12]),
            cure=CURE,
        )
    text = table["question" if name == "dc" else "prompt"].to_list()
    contexts, first = np.unique(
        np.stack([np.asarray(row, dtype=np.float32) for row in table["embedding"].to_list()]),
        axis=0,
        return_index=True,
    )
    digests = [hashlib.sha256(f"depsue {text[k]}".encode()).digest() for k in first]
    scores = table.select([f"{prefix}{model}" for model in models]).to_numpy()[first]
    if name == "dc":
        prices = json.loads((folder / "models.json").read_text("utf-8"))
        each = np.array([float(prices[model]["input_price"]) for model in models])
        costs = np.broadcast_to(each, scores.shape)
    else:
        costs = table.select([f"cost:{model}" for model in models]).to_numpy()[first]
    costs = np.minimum(costs, CAPS[name]) / CAPS[name]  # a router stops at its cap
    mean = costs.mean(axis=0)
    features = np.stack([mean, np.argsort(np.argsort(mean)) / len(mean)], axis=1)
    return Routing(
        name,
        models,
        np.array([int.from_bytes(digest[:8], "big") / 2**64 for digest in digests]),
        contexts,
        np.clip(scores, 0.0, 1.0),
        np.array(costs),
        features.astype(np.float32),
    )


def current_router(routing: Routing, new: int) -> SoftmaxOfScores:
    """pi0: it knows all models but one, from the prompts of development."""
    x = np.concatenate([np.ones((len(routing.contexts), 1)), routing.contexts], axis=1)
    learned = routing.prompts < DEVELOPMENT
    gram = x[learned].T @ x[learned] + 10.0 * np.eye(x.shape[1])
    predicted = x @ np.linalg.solve(gram, x[learned].T @ routing.scores[learned])
    scores = predicted - EVEN * routing.costs.mean(axis=0)
    known = np.arange(len(routing.models)) != new
    return SoftmaxOfScores(ScoreTable(routing.contexts, scores), SHARP, known)


def run_cell(
    routing: Routing, new: int, seed: int, settings: RivalSettings, method: str, final: bool
) -> Cell:
    """One method with one new model: a line of cells.jsonl.

    Args:
        routing: all prompts.
        new: which model is new.
        seed: of all draws.
        settings: of the methods.
        method: one of METHODS.
        final: whether prompts that were kept for the end come up, or those of development.
    """
    part = routing.take((routing.prompts >= DEVELOPMENT) == final)
    come_up = np.array([rng.derive(seed, "prompt", k) % 2 for k in range(len(part.prompts))]) == 0
    pi0 = current_router(routing, new)
    here, others = (_world(part.take(some), new, pi0, seed) for some in (come_up, ~come_up))
    logs = here.deploy(pi0, settings.rows, round=0)
    saved = here.mean_of("saving", pi0)
    ratio = (1 - (1 + ON_COST) * (1 - saved)) / saved
    explore = ExploreSettings(
        promises=(
            Promise(Floor(settings.floor), name="quality"),
            Promise(Floor(ratio), name="cost", reward="saving", r_max=1.0),
        ),
        deployments=settings.rounds,
        objective="most novelty",
        rewards=RewardSettings(members=1, max_epochs=5),
    )
    asked = Requests(part.contexts)
    rounds = played(method, here, logs, explore, settings, requests=asked, seed=seed)
    worth = float(part.scores[:, new].mean()), float(part.costs[:, new].mean())
    return {
        "table": routing.name,
        "method": method,
        "new": routing.models[new],
        "seed": seed,
        "prompts": [len(here.contexts), len(others.contexts)],
        "new_score": worth[0] / here.value(pi0),
        "new_cost": worth[1] / (1 - saved),
        "rounds": [
            {
                "certified": one.certified,
                "here": _judged(here, one.policy, pi0),
                "others": _judged(others, one.policy, pi0),
            }
            for one in rounds
        ],
    }


def _world(part: Routing, new: int, pi0: BasePolicy, seed: int) -> World:
    novel = np.arange(len(part.models)) == new
    catalogue = Catalogue(np.array(part.models), novel, part.features)
    saving = {"saving": 1.0 - part.costs}
    return World(part.contexts, RewardTable(part.scores), catalogue, pi0, seed=seed, others=saving)


def _judged(world: World, policy: BasePolicy, pi0: BasePolicy) -> dict[str, float]:
    """Quality and cost over pi0's, and the share of the new model, exactly."""
    value, novelty = world.value_and_novelty(policy)
    cost, cost0 = (1 - world.mean_of("saving", one) for one in (policy, pi0))
    return {"quality": value / world.value(pi0), "cost": cost / cost0, "novelty": novelty}


def study(
    folder: Path,
    data: Path,
    settings: RivalSettings,
    *,
    final: bool,
    seeds: Sequence[int],
    say: Callable[[str], None],
) -> list[Cell]:
    """All cells that are not in cells.jsonl yet; then all cells.

    Args:
        folder: where cells.jsonl is.
        data: the folder of the tables.
        settings: of the methods.
        final: whether prompts that were kept for the end come up.
        seeds: of the campaigns; each has one for every model of both tables.
        say: told of each cell that is finished.
    """
    kept = KeptCells(folder, "table", "method", "new", "seed")
    tables = {name: read_routing(data, name) for name in TABLES} if seeds else {}
    for seed, (name, routing) in product(seeds, tables.items()):
        for new, method in product(range(len(routing.models)), METHODS):
            if kept.has(name, method, routing.models[new], seed):
                continue
            cell = kept.add(run_cell(routing, new, seed, settings, method, final))
            last = cell["rounds"][-1]["here"]
            say(
                f"seed {seed} {name} {routing.models[new]}, {method}: "
                f"quality {last['quality']:.3f}, cost {last['cost']:.3f}, "
                f"share {last['novelty']:.3f}"
            )
    return kept.cells


def write_page(cells: Sequence[Cell], folder: Path, settings: RivalSettings, command: str) -> None:
    """study.md and study.png, from the cells."""
    campaigns = {(cell["table"], cell["new"], cell["seed"]) for cell in cells}
    seeds = ", ".join(map(str, sorted({cell["seed"] for cell in cells})))
    tables = "\n".join(_table(cells, name, settings) for name in TABLES)
    text = f"""# A new model joins a router: certified exploration and its rivals

Made by `{command}`:
{len(campaigns)} campaigns of {settings.rounds} rounds with {settings.rows:,} requests each, seeds
{seeds}. Read [the worked example](../../routers.md) first.

- Each model in turn is new; a current router (pi0) chooses among the others, by quality and price.
- Two promises, delta 5% a deployment: quality at least {settings.floor:.0%} of pi0's, cost at most
  {1 + ON_COST:.0%} of pi0's. Other methods know neither; Safe OPG knows the first.
  *Priced* is epsilon-greedy on {1 - settings.price:.0%} quality and {settings.price:.0%} saving,
  the weight of nine that broke the fewest promises on development; it was added after the others
  had been run. *Even* is pi0 with an even
  choice among new models in {1 - settings.floor:.0%} of the requests.
- An answer is accepted with the probability that its score says. Quality and cost of a policy are
  then exact sums over prompts: over those that came up (*here*, about which a certificate speaks),
  and over *others* of the same kind.
- The current router and all settings were chosen on other prompts (two fifths, by a hash); these
  were run once.
- Intervals are 95%, over campaigns with one new model each; seeds share models and differ in
  prompts and draws.

{tables}
![quality and cost of each last policy over pi0's, by method](study.png)
"""
    (folder / "study.md").write_text(text, encoding="utf-8")
    _figure(cells, settings.floor).savefig(folder / "study.png", dpi=110)


TITLES = {
    "dc": "Nine models, priced by the token (LLMRouter)",
    "pareto": "Four models, dollars a request (ParetoBandit)",
}


def _table(cells: Sequence[Cell], name: str, settings: RivalSettings) -> str:
    mine = [cell for cell in cells if cell["table"] == name]
    if not mine:
        return ""
    lines = [
        f"## {TITLES[name]}",
        "",
        "| method | deployments | passed | quality below its floor | cost above its ceiling "
        "| either, on other prompts |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for method in METHODS:
        rounds = [one for cell in mine if cell["method"] == method for one in cell["rounds"]]
        if not rounds:
            continue
        asked = [one["certified"] for one in rounds if one["certified"] is not None]
        low = [_low(one["here"], settings.floor) for one in rounds]
        dear = [_dear(one["here"]) for one in rounds]
        other = [_low(one["others"], settings.floor) or _dear(one["others"]) for one in rounds]
        counts = " | ".join(clopper_pearson(sum(x), len(x)) for x in (low, dear, other))
        lines.append(f"| {method} | {len(rounds)} | {sum(asked) if asked else '-'} | {counts} |")
    lines += [
        "",
        f"The policy of round {settings.rounds}:",
        "",
        "| method | share of the new model | quality / pi0's | cost / pi0's |",
        "|---|--:|--:|--:|",
    ]
    for method in METHODS:
        last = [cell["rounds"][-1]["here"] for cell in mine if cell["method"] == method]
        if last:
            columns = ([one[key] for one in last] for key in ("novelty", "quality", "cost"))
            lines.append(f"| {method} | " + " | ".join(map(mean_interval, columns)) + " |")
    return "\n".join([*lines, ""])


def _low(one: dict[str, float], floor: float) -> bool:
    return one["quality"] < floor


def _dear(one: dict[str, float]) -> bool:
    return one["cost"] > 1 + ON_COST


def _figure(cells: Sequence[Cell], floor: float) -> Any:
    from matplotlib.figure import Figure

    names = [name for name in TABLES if any(cell["table"] == name for cell in cells)]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for name, axis in zip(names, axes, strict=True):
        for place, method in enumerate(METHODS):
            last = [
                cell["rounds"][-1]["here"]
                for cell in cells
                if cell["table"] == name and cell["method"] == method
            ]
            axis.scatter(
                [one["cost"] for one in last],
                [one["quality"] for one in last],
                s=[12 + 120 * one["novelty"] for one in last],
                alpha=0.7,
                color=f"C{place}",
                label=method,
                lw=0,
                zorder=10 - place,
            )
        axis.axhline(floor, color="#b3312c", ls="--", lw=1.1)
        axis.axvline(1 + ON_COST, color="#b3312c", ls="--", lw=1.1)
        axis.set(xlabel="cost, over pi0's", xscale="log")
        least, most = axis.get_xlim()
        ticks = [tick for tick in (0.2, 0.5, 1, 2, 3, 5, 10, 20) if least < tick < most]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_title(TITLES[name], fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("quality, over pi0's")
    handles, labels = axes[0].get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="outside right center",
        frameon=False,
        title="larger: more of the new model",
    )
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([30])
    return figure
