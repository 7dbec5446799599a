"""Real campaigns, with their files and ledger: rollbacks, and logs with wrong propensities."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from depsue.campaigns import Campaign, CampaignSettings, create
from depsue.certificates import Certificate
from depsue.data.logs import LoggedData
from depsue.data.writing import write_items, write_logs
from depsue.errors import DepsueError
from depsue.rewards import RewardSettings
from depsue_research.audit.answers import Answer, Key, Outcome, Trial, judged
from depsue_research.audit.campaigns import settings_for
from depsue_research.audit.worlds import NearMissWorld, near_miss_world

REWARDS = RewardSettings(members=1, hidden=(4,), max_epochs=1)
"""A small network: this is about certificates."""
LARGER = 10_000
"""Rows of the first logs and of each round."""
WRONG = 0.2
"""Share of wrong propensities."""


def begun(world: NearMissWorld, logs: LoggedData, folder: Path) -> Campaign:
    """A campaign in `cumulative`, with `no_drift`, begun on these logs."""
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(replace(logs, columns={}), folder / "0.parquet")
    explore = settings_for(
        safety="cumulative", no_drift=True, deployments=3, rewards=REWARDS, objective="most novelty"
    )
    return create(
        "audit",
        folder / "0.parquet",
        folder / "items.parquet",
        pi0=world.policy(world.pi0),
        settings=CampaignSettings(explore),
        by="audit",
        home=folder / "home",
    )


def rolled_back(draw: np.random.Generator) -> Outcome:
    """A round that was certified with margin serves again, below the floor and without help."""
    kind, out = "campaigns with files, rollback to round {}", dict[Key, Answer]()
    with TemporaryDirectory() as name:
        folder, world = Path(name), near_miss_world("plain", draw)
        campaign = begun(world, world.logs(world.pi0, LARGER, draw), folder)
        with closing(campaign.ledger):
            rates: list[bool] = []
            for k in (1, 2):
                campaign.train()
                campaign.certify()
                served = campaign.policy(k, campaign.deploy().policy_hash)
                pi = world.distribution(served)
                rates.append(float(world.value(pi)) >= world.floor - 1e-9)
                logs = replace(world.logs(pi, LARGER, draw, k), columns={})
                write_logs(logs, folder / f"{k}.parquet")
                campaign.observe(folder / f"{k}.parquet")
            for k in (1, 2):
                try:
                    campaign.rollback(to=k)
                    answer = judged(True, true=rates[k - 1])
                except DepsueError:
                    answer = "refused"
                out["strict", kind.format(k), "round 3"] = answer
    return out


def misreported(draw: np.random.Generator) -> Outcome:
    """Logs in which a fifth of the propensities is doubled or halved."""
    world = near_miss_world("plain", draw)
    logs = world.logs(world.pi0, LARGER, draw)
    factor = np.where(draw.random(LARGER) < WRONG, draw.choice([0.5, 2.0], LARGER), 1.0)
    wrong = replace(logs, propensity=np.minimum(logs.propensity * factor, 1.0))
    answer: Answer
    with TemporaryDirectory() as name:
        try:
            campaign = begun(world, wrong, Path(name))
            with closing(campaign.ledger):
                campaign.train()
                text = campaign.certify().certificate or ""
            answer = judged(Certificate.from_json(text).passed)
        except DepsueError:
            answer = "refused"
    return {("strict", "campaigns with files, wrong propensities", "round 1"): answer}


TRIALS: dict[str, Trial] = {"rollbacks": rolled_back, "wrong propensities": misreported}
"""Each plays a campaign in a folder of its own and says what came of it."""
