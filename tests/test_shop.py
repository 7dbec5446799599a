"""The simulated shop: what it logs agrees with its truth, in each way in which pi0 may be known."""

from typing import Any

import numpy as np
import pytest

from depsue.data import Candidates, LoggedData
from depsue.errors import ConfigError
from depsue.estimators.weights import importance_weights
from depsue.policies import BasePolicy, Mixture, OrElse, Uniform
from depsue.shop import Known, Shop, ShopSettings

SMALL = {"requests": 80, "users": 30, "items": 40, "new": 5, "retrieved": 12, "d": 3}


def small(known: Known = "called", **options: Any) -> Shop:
    return Shop(ShopSettings(**{**SMALL, **options}), known=known, seed=3)


def of_new(shop: Shop, share: float) -> BasePolicy:
    """pi0, and an even choice among the new items with the given share."""
    choice = OrElse(Uniform(shop.catalogue.novel), shop.ranker)
    return Mixture([shop.ranker, choice], [1 - share, share])


def sets_of(logs: LoggedData) -> Candidates:
    assert logs.candidates is not None
    return logs.candidates


@pytest.mark.parametrize("known", ["called", "logged"])
def test_logs_agree_with_the_true_value_and_weights_with_the_truth(known: Known) -> None:
    shop = small(known)
    logs = shop.deploy(shop.logging_policy, 30_000, round=0)
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - shop.value(shop.logging_policy)) < 4 * error
    even = Uniform(~shop.catalogue.novel)
    terms = importance_weights(even, logs) * logs.reward
    assert abs(terms.mean() - shop.value(even)) < 4 * terms.std() / np.sqrt(len(logs))
    assert shop.novelty(shop.logging_policy) == 0
    assert (sets_of(logs).pi0 is None) == (known == "called")


def test_new_items_are_candidates_that_pi0_does_not_show() -> None:
    shop = small("logged")
    logs = shop.deploy(shop.logging_policy, 2000, round=0)
    sets = sets_of(logs)
    new = logs.catalogue.novel[sets.items]
    assert sets.pi0 is not None
    assert (sets.pi0[new] == 0).all()
    assert (sets.pi0[~new] > 0).all()
    assert 0 < new.sum() < len(new)


def test_new_items_arrive_every_day_and_pi0_earns_the_same() -> None:
    shop = small(days=2)
    pi0, novel = shop.logging_policy, shop.catalogue.novel
    counts = []
    for number in range(3):
        these = shop.round(number)
        shown = these.sets.items[novel[these.sets.items]]
        counts.append(len(np.unique(shown)))
        assert shop.arrives[shown].max() == these.day.max()
        assert shop.value(pi0, round=number) == pytest.approx(shop.value(pi0))
    assert counts == [7, 11, 15]
    logs = shop.deploy(of_new(shop, 0.2), 4000, round=2)
    arrived = shop.arrives[logs.action]
    assert logs.time is not None
    assert (arrived <= logs.time).all()


def test_items_are_out_of_stock_as_often_as_was_said() -> None:
    shop = small(requests=2000, out_of_stock=0.25, new=30)
    sets = shop.round(0).sets
    new = shop.catalogue.novel[sets.items].sum() / 2000 / 30
    assert new == pytest.approx(0.75, abs=0.01)
    assert small(out_of_stock=0.0).round(0).sets.sizes.tolist() == [12 + 5] * 80


@pytest.mark.parametrize("known", ["called", "logged"])
def test_the_truth_is_that_of_what_is_deployed(known: Known) -> None:
    shop = small(known)
    policy = of_new(shop, 0.3)
    logs = shop.deploy(policy, 30_000, round=1)
    assert logs.catalogue.novel[logs.action].mean() == pytest.approx(
        shop.novelty(policy, round=1), abs=0.01
    )
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - shop.value(policy, round=1)) < 4 * error


def test_where_pi0_is_chosen_rows_say_who_chose() -> None:
    shop = small("chosen")
    pi0, new = shop.logging_policy, Uniform(shop.catalogue.novel)
    policy = Mixture([pi0, OrElse(new, pi0)], [0.7, 0.3])
    assert shop.deploy(pi0, 100, round=0).by_pi0 is None
    logs = shop.deploy(policy, 30_000, round=1)
    assert logs.by_pi0 is not None
    assert sets_of(logs).pi0 is None
    mine = logs.by_pi0 > 0
    novel = logs.catalogue.novel[logs.action]
    assert (novel == ~mine).all()
    share = policy.pi0_share(logs.requests)[logs.context]
    assert np.allclose(logs.propensity[mine], (share * logs.by_pi0)[mine])
    assert mine.mean() == pytest.approx(share.mean(), abs=0.01)
    assert novel.mean() == pytest.approx(shop.novelty(policy, round=1), abs=0.01)
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - shop.value(policy, round=1)) < 4 * error
    # each item's 1/p adds up to the requests in which it is a candidate
    at = sets_of(logs).items
    there = np.bincount(at, np.repeat(logs.context_counts, sets_of(logs).sizes)) / len(logs)
    seen = np.bincount(logs.action, 1 / logs.propensity, len(there)) / len(logs)
    assert np.abs(seen - there)[logs.catalogue.novel[: len(there)]].max() < 0.15


@pytest.mark.parametrize("slots", [2, 3])
def test_a_page_is_worth_what_its_slots_earn(slots: int) -> None:
    shop = small(slots=slots, decided=2, spill=0.3)
    policy = of_new(shop, 0.4)
    logs = shop.deploy(policy, 40_000, round=1)
    assert logs.r_max == slots
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - shop.value(policy, round=1)) < 4 * error
    slot = logs.column("slot_reward")
    assert abs(slot.mean() - shop.value_of_slot(policy, round=1)) < 4 * slot.std() / 200
    placed = np.unique(logs.contexts[:, 3:], axis=0)
    assert len(placed) > 10  # what stands above is part of the context


def test_what_is_lost_beside_a_new_item_is_the_declared_share() -> None:
    shops = [small(slots=2, decided=2, spill=spill) for spill in (0.0, 0.3)]
    new = OrElse(Uniform(shops[0].catalogue.novel), shops[0].ranker)
    rest = [shop.value(new) - shop.value_of_slot(new) for shop in shops]
    assert rest[1] == pytest.approx(0.7 * rest[0])
    pi0 = [shop.value(shop.logging_policy) for shop in shops]
    assert pi0[0] == pi0[1]


def test_rows_of_pages_tell_the_same_story() -> None:
    shop = small(slots=3, decided=2)
    pages = shop.deploy(shop.logging_policy, 500, round=0)
    rows = shop.page_rows(shop.logging_policy, 500, round=0)
    assert len(rows) == 1500
    decided = rows.filter(rows["position"] == 2)
    assert decided["item"].to_list() == pages.catalogue.ids[pages.action].tolist()
    assert np.array_equal(decided["propensity"], pages.propensity)
    assert np.array_equal(decided["page_clicks"], pages.reward)
    assert rows["clicked"].sum() == pages.reward.sum()
    assert len(rows.unique(["page", "item"])) == 1500  # no item twice on a page
    assert all(item in some for item, some in rows.select("item", "candidates").rows())


def test_traffic_differs_and_the_shop_stays() -> None:
    settings = ShopSettings(**SMALL)
    first, again, other = (Shop(settings, seed=1, traffic=t) for t in (None, 1, 2))
    hashes = [shop.deploy(shop.logging_policy, 200, round=0).hash for shop in (first, again, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert first.value(first.ranker) == other.value(other.ranker)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 3, "decided": 1}, "must be the last of the page"),
        ({"slots": 12, "decided": 12}, "more items retrieved than slots"),
        ({"rate": 0.0}, "rate must lie in"),
        ({"items": 0}, "items must be at least 1"),
        ({"spill": 1.5}, "spill must lie in"),
    ],
)
def test_impossible_shops_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShopSettings(**{**SMALL, **options})


def test_a_round_without_items_is_refused() -> None:
    with pytest.raises(ConfigError, match="round 4 of 4"):
        small().round(4)
