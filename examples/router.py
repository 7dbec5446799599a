"""A new language model joins a router: quality keeps a floor, cost a ceiling.

    python examples/router.py [--rows 20000] [--seed 0] [--files router-files]

A small simulated router in the shape of real ones: prompts with an embedding, models with a price,
and an answer that the user accepts or not. The current router (pi0) chooses among four models; a
fifth is new. With --files the logs are written, so that the commands of docs/routers.md run on
them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import depsue
from depsue.data import Catalogue
from depsue.data.writing import write_items, write_logs
from depsue.learners import epsilon_greedy
from depsue.policies import BasePolicy
from depsue.policies.files import save
from depsue.rewards import fit_linear
from depsue.world import RewardTable, World

MODELS = ("small-8b", "medium-24b", "coder-32b", "large-120b", "new-30b")
PRICE = np.array([0.1, 0.3, 0.4, 1.0, 0.35])
"""Dollars per million tokens; a request may cost CAP at most, as the router sees to."""
CAP = 1.2
STRENGTH = np.array([-0.9, 0.0, 0.1, 0.9, 0.6])
"""How good a model is on an average prompt; nobody knows it of the new one."""


def router(seed: int, prompts: int = 400) -> World:
    """Prompts, models, and pi0: a softmax of a score that likes quality and dislikes price."""
    draw = np.random.default_rng(seed)
    embedding = draw.normal(size=(prompts, 6)).astype(np.float32)
    hard = embedding @ draw.normal(size=6) / 6**0.5
    taste = embedding @ draw.normal(size=(6, len(MODELS))) * 0.15
    accepted = 1 / (1 + np.exp(-(0.8 + STRENGTH - 0.6 * hard[:, None] + taste)))
    length = np.clip(draw.lognormal(0.0, 0.25, size=(prompts, 1)), 0.5, 2.0)
    cost = np.minimum(PRICE * length / 2, CAP)  # what an answer of that length costs
    novel = np.array([name.startswith("new") for name in MODELS])
    features = np.stack([PRICE, np.log(PRICE)], axis=1).astype(np.float32)
    catalogue = Catalogue(np.array(MODELS), novel, features)
    scores = np.log(accepted / (1 - accepted)) - 0.5 * PRICE
    pi0 = depsue.SoftmaxOfScores(depsue.ScoreTable(embedding, scores), 1.0, ~novel)
    saving = {"saving": 1 - cost / CAP}  # a floor on what is saved is a ceiling on the cost
    return World(embedding, RewardTable(accepted), catalogue, pi0, seed=seed, others=saving)


def promises(
    world: World, logs: depsue.LoggedData, *, quality: float, cost: float
) -> tuple[depsue.Promise, depsue.Promise]:
    """Quality at least `quality` of pi0's; cost at most `cost` of pi0's, as a share saved."""
    saved = float(logs.column("saving").mean())
    ratio = (1 - cost * (1 - saved)) / saved
    return (
        depsue.Promise(depsue.Floor(quality), name="quality"),
        depsue.Promise(depsue.Floor(round(ratio, 4)), name="cost", reward="saving", r_max=1.0),
    )


def line(name: str, world: World, policy: BasePolicy) -> str:
    """Quality and cost over pi0's, and the new model's share, of a policy: the truth."""
    pi0 = world.logging_policy
    quality = world.value(policy) / world.value(pi0)
    cost = (1 - world.mean_of("saving", policy)) / (1 - world.mean_of("saving", pi0))
    share = world.novelty(policy)
    return f"{name:<28} quality {quality:.3f}  cost {cost:.3f}  new model {share:.3f}"


def write_files(world: World, logs: depsue.LoggedData, folder: Path) -> None:
    """logs.parquet, models.parquet, pi0/, mapping.toml and promises.toml, for the commands."""
    folder.mkdir(parents=True, exist_ok=True)
    write_logs(logs, folder / "logs.parquet")
    write_items(world.catalogue, folder / "models.parquet")
    save(world.logging_policy, folder / "pi0", catalogue=world.catalogue)
    quality, cost = promises(world, logs, quality=0.97, cost=1.1)
    contexts = ", ".join(f'"x{k}"' for k in range(world.contexts.shape[1]))
    (folder / "mapping.toml").write_text(
        "r_max = 1.0\n\n[columns]\n"
        'action = "action"\nreward = "reward"\npropensity = "propensity"\n\n'
        f"[contexts]\nnumeric = [{contexts}]\n\n[other_rewards]\nsaving = 1.0\n"
    )
    (folder / "promises.toml").write_text(
        f'[[promise]]\nname = "quality"\nfloor = {quality.floor.ratio}\n\n'
        f'[[promise]]\nname = "cost"\nreward = "saving"\nr_max = 1.0\n'
        f"floor = {cost.floor.ratio}\n"
    )


def main(rows: int, seed: int, files: Path | None) -> list[str]:
    """Three rounds of certified exploration, beside forced exploration and epsilon-greedy."""
    world = router(seed)
    logs = world.deploy(world.logging_policy, rows, round=0)
    if files is not None:
        write_files(world, logs, files)
    settings = depsue.ExploreSettings(
        promises=promises(world, logs, quality=0.97, cost=1.1),
        deployments=3,
        objective="most novelty",
        no_drift=False,
    )
    result = depsue.run_exploration(world, rows * 3, settings, seed=seed, logs=logs)
    lines = []
    for done in result.deployments:
        policy = done.explored.policy
        if isinstance(policy, BasePolicy):
            what = "certified" if done.explored.certified else "what is certain"
            lines.append(line(f"round {done.k}, {what}", world, policy))
    forced = depsue.naive_safe_exploration(world.logging_policy, world.catalogue, share=0.2)
    lines.append(line("forced exploration, 20%", world, forced))
    greedy = epsilon_greedy(fit_linear(logs), world.catalogue, 0.1)
    lines.append(line("epsilon-greedy, 10%", world, greedy))
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="requests of each round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=Path, help="folder for the logs of pi0")
    options = parser.parse_args()
    print("\n".join(main(options.rows, options.seed, options.files)))
