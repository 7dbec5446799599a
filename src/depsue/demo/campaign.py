"""The demo's campaign, ready to be served: two rounds are certified, the first was observed."""

from __future__ import annotations

import shutil
from pathlib import Path

from depsue import rng
from depsue.campaigns import Campaign, create
from depsue.data.writing import write_items, write_logs
from depsue.errors import FileError, require
from depsue.policies import Uniform
from depsue.policies.tilted import Tilted
from depsue.progress import Watch, silent
from depsue.rewards import fit_linear
from depsue.world import SyntheticSettings, World, synthetic_world

NAME, FOLDER, MARK = "demo", "shop", "made-by-depsue-demo"
"""The file MARK says that a folder is the demo's own, and may be deleted by the next run."""
WORLD = SyntheticSettings(users=1000, supported=160, novel=40, beta=1.0, spread=0.4, d=6)
"""A shop in which new items are as good as old ones."""
ROWS = 30_000


def demo_world(seed: int) -> World:
    """The shop, its users and what they like."""
    return synthetic_world(WORLD, seed=seed)


def make_demo_campaign(out: str | Path, *, seed: int, watch: Watch = silent) -> Campaign:
    """Make the shop's files and its campaign in the folder `out`, replacing an earlier demo's.

    pi0 is a model, not a table, so that the service can answer for any context.

    Args:
        out: the folder of the demo.
        seed: of everything.
        watch: shows progress.
    """
    folder = Path(out) / FOLDER
    if folder.exists():
        require(
            (folder / MARK).exists(),
            "the demo's shop goes into a folder of its own",
            found=f"{folder}, which is not the demo's",
            cure="choose another folder with --out",
            error=FileError,
        )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    world = demo_world(seed)
    old_items = Uniform(~world.catalogue.novel)
    with rng.one_thread():
        model = fit_linear(world.deploy(old_items, 20_000, round=0))
        pi0 = Tilted(old_items, model, strength=1.0, cap=50.0, scale=0.05)
        write_items(world.catalogue, folder / "items.parquet")
        write_logs(world.deploy(pi0, ROWS, round=0), folder / "may.parquet")
        campaign = create(
            NAME,
            folder / "may.parquet",
            folder / "items.parquet",
            pi0=pi0,
            by="demo",
            home=folder / "campaigns",
        )
        _next_round(campaign, watch)
        served = campaign.policy(1, campaign.ledger.deployments(NAME)[-1].policy_hash)
        write_logs(world.deploy(served, ROWS, round=1), folder / "june.parquet")
        campaign.observe(folder / "june.parquet")
        _next_round(campaign, watch)
    return campaign


def _next_round(campaign: Campaign, watch: Watch) -> None:
    campaign.train(watch=watch)
    campaign.certify(watch=watch)
    campaign.deploy()
