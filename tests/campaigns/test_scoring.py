"""The exported policy as a plain function, against the policy itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.campaigns import CampaignSettings, Export, create, export_campaign, load_export
from depsue.campaigns.scoring import Scorer
from depsue.data import Candidates
from depsue.data.requests import Requests
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError, FileError, PolicyError
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
    _decide(exported, campaign.policy(k, campaign.deploy().policy_hash), shop, k)
    (out / "scoring.py").write_text("edited")
    with pytest.raises(FileError, match="must be those that were exported"):
        load_export(out)


def _decide(export: Export, policy: Any, shop: Shop, k: int) -> None:
    """Rows that bring candidates by the mapping's names get some of these, as often as is said."""
    at, n, names = np.array([3]), 4000, export.mapping
    few = shop.round(k).requests.take(at)
    assert few.sets is not None and names.candidates is not None
    mine = export.catalogue.ids[few.sets.items].tolist()
    row: dict[str, Any] = dict(zip(names.numeric, few.contexts[0].tolist(), strict=True))
    draws = np.random.default_rng(0)
    lone = [dict(row, chosen=mine[0], chosen_probability=0.5)]
    ask: Any = export.decide_beside if policy.rests_on_choice else export.decide
    with pytest.raises(ConfigError, match=f"row 0 has no '{names.candidates}'"):
        ask(lone, draws)
    row[names.candidates] = mine
    if few.sets.pi0 is not None:
        with pytest.raises(PolicyError, match="must bring pi0's probabilities"):
            ask([row], draws)
        row[str(names.probabilities)] = few.sets.pi0.tolist()
    if policy.rests_on_choice:
        with pytest.raises(ConfigError, match="a decision begins with its choice"):
            export.decide([row], draws)
        row |= {"chosen": mine[0], "chosen_probability": 0.5}
        with pytest.raises(ConfigError, match="one of the candidates"):
            ask([dict(row, chosen="nothing")], draws)
        ids, p, by_pi0 = ask([row] * n, draws)
        share, expected = policy.pi0_share(few)[0], policy.besides_pi0(few)[0]
        assert (by_pi0 > 0).mean() == pytest.approx(share, abs=4 * np.sqrt(share / n))
        assert np.allclose(p[by_pi0 > 0], 0.5 * share) and set(by_pi0) <= {0.0, 0.5}
        expected[0] += share
    else:
        ids, p = ask([row] * n, draws)
        by_pi0, expected = np.zeros(n), policy.over(few)[0]
    place = np.array([mine.index(id) for id in ids])
    assert np.allclose(p[by_pi0 == 0], expected[place][by_pi0 == 0])
    often = np.bincount(place, minlength=len(mine)) / n
    assert (np.abs(often - expected) < 4.5 * np.sqrt(expected / n) + 1e-3).all()


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
