"""The exported policy as a plain function, against the policy itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.campaigns import CampaignSettings, create, export_campaign, load_export
from depsue.campaigns.scoring import Scorer
from depsue.data import Candidates
from depsue.data.requests import Requests
from depsue.data.writing import write_items, write_logs
from depsue.errors import FileError
from depsue.exploration.settings import ExploreSettings
from depsue.rewards import RewardSettings
from depsue.shop import KNOWN, Known, Shop, ShopSettings

SHOP = ShopSettings(
    requests=100, users=40, items=30, new=4, arrivals=0, retrieved=10, d=3, rate=0.3
)
EXPLORE = ExploreSettings(
    objective="most novelty", deployments=2, rewards=RewardSettings(members=2, max_epochs=2)
)


@pytest.mark.parametrize("known", KNOWN)
def test_it_gives_the_policys_own_probabilities(known: Known, tmp_path: Path) -> None:
    shop = Shop(SHOP, known=known, seed=5)
    pi0 = shop.logging_policy
    write_logs(shop.deploy(pi0, 8000, round=0), tmp_path / "0.parquet")
    write_items(shop.catalogue, tmp_path / "items.parquet")
    named: Any = pi0 if known == "called" else known
    settings = CampaignSettings(EXPLORE)
    campaign = create("shop", tmp_path / "0.parquet", tmp_path / "items.parquet", pi0=named,
                      settings=settings, by="ana", home=tmp_path / "campaigns")  # fmt: skip
    campaign.train()
    campaign.certify()
    for k in (1, 2) if known == "logged" else (1,):  # later rounds mix what earlier ones served
        policy = campaign.policy(k, campaign.deploy().policy_hash)
        out = tmp_path / f"out{k}"
        assert "scoring.py" in export_campaign(campaign, out)
        _compare(Scorer(out), policy, shop, k)
        if k == 1 and known == "logged":
            write_logs(shop.deploy(policy, 8000, round=1), tmp_path / "1.parquet")
            campaign.observe(tmp_path / "1.parquet")
            campaign.train()
            campaign.certify()
    # nothing of depsue is needed
    code = "import sys, scoring; scoring.Scorer('.'); print('depsue' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=out, capture_output=True, text=True)
    assert ran.stdout.strip() == "False", ran.stderr
    exported = load_export(out)
    if known == "logged":
        mine = exported.catalogue.ids[:3].tolist()
        row = dict.fromkeys(exported.mapping.numeric, 0.1)
        shown, p = exported.decide([row], np.random.default_rng(0), [mine], [[0.5, 0.5, 0.0]])
        assert shown[0] in mine and 0 < p[0] <= 1
    (out / "scoring.py").write_text("edited")
    with pytest.raises(FileError, match="must be those that were exported"):
        load_export(out)


def _compare(scorer: Scorer, policy: Any, shop: Shop, k: int) -> None:
    """At some requests of a round, candidate by candidate."""
    requests = shop.round(k).requests
    sets = requests.sets
    assert sets is not None
    ids = shop.catalogue.ids
    base = shop.ranker.over(Requests(requests.contexts, Candidates(sets.starts, sets.items)))
    for u in range(0, len(requests), 9):
        items = sets.items[sets.starts[u] : sets.starts[u + 1]]
        few = requests.take(np.array([u]))
        names, x = ids[items].tolist(), requests.contexts[u]
        if policy.rests_on_choice:
            share, g = scorer.beside_pi0(names, x)
            assert share == pytest.approx(float(policy.pi0_share(few)[0]), abs=1e-6)
            np.testing.assert_allclose(g, policy.besides_pi0(few)[0], atol=2e-6)
            with pytest.raises(ValueError, match="rests on pi0's own choice"):
                scorer.probabilities(names, None, x)
        else:
            p0 = base[u, : len(items)]
            np.testing.assert_allclose(
                scorer.probabilities(names, p0, x), policy.over(few)[0], atol=2e-6
            )
            q = np.linspace(0, 1, len(items))
            assert scorer.probabilities(names, p0, q_hat=q).sum() == pytest.approx(1)
    with pytest.raises(KeyError, match="no item of the export"):
        scorer.beside_pi0(["nobody"])
