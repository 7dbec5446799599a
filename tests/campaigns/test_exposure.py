"""Exposure of items: what is forecast before it is deployed, and what can be discovered."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.campaigns.made import Made, sha

from depsue import Catalogue
from depsue.campaigns.exposure import CorpusCount, ItemCounts, corpus_of
from depsue.campaigns.records import MOST_ITEMS, ItemShare, NewItemShares
from depsue.errors import ConfigError
from depsue.exploration.choices import Expected, ExposureAhead

UNEVEN = NewItemShares(
    items=(
        ItemShare("kettle", 0.88, 0.25),
        ItemShare("lamp", 0.06, 0.25),
        ItemShare("mug", 0.04, 0.25),
        ItemShare("pot", 0.02, 0.25),
    ),
    likely=0.1,
)
EVEN = Expected(old=1.4, new=0.8, logging=1.0, even=0.7)


def trained(shares: NewItemShares = UNEVEN) -> Made:
    return Made().observe(0).train(1, exposure=shares, expected=EVEN)


def test_before_the_verdict_the_likely_level_and_what_is_certain_are_forecast() -> None:
    learned, even = trained().story.forecasts
    assert (learned.stage, learned.what, learned.novelty) == ("candidate", "certified", 0.1)
    assert (learned.decisions, learned.declared) == (10_000, True)
    assert learned.shown == pytest.approx(1000)
    assert [(item.id, round(item.shown)) for item in learned.items] == [
        ("kettle", 880),
        ("lamp", 60),
        ("mug", 40),
        ("pot", 20),
    ]
    assert sum(item.share for item in learned.items) == pytest.approx(1)
    assert even.what == "certain" and even.even and even.warnings == ()
    assert [round(item.shown) for item in even.items] == [125] * 4
    text = str(trained().story)
    assert "each of 4 new items: 125 (25.0%)" in text
    assert "kettle       880  88.0%" in text


def test_most_for_one_item_and_hardly_any_for_others_is_said_aloud() -> None:
    most, few = trained().story.forecasts[0].warnings
    assert "kettle is forecast to get 88% of all that 4 new items are shown" in most
    assert "--what certain shows all evenly" in most
    assert "2 of 4 new items are forecast to be shown hardly at all: fewer than 50 times" in few
    assert "such as pot (20 times), mug (40 times). create --least gives each" in few


@pytest.mark.parametrize(
    ("shares", "warned"),
    [
        ((0.7, 0.3), 0),  # of two items one may well have most
        ((0.8, 0.2), 1),
        ((1.0,), 0),
        ((0.4, 0.35, 0.25), 0),
        ((0.52, 0.47, 0.01), 2),
    ],
)
def test_a_warning_needs_a_reason(shares: tuple[float, ...], warned: int) -> None:
    items = tuple(ItemShare(f"i{k}", share, 1 / len(shares)) for k, share in enumerate(shares))
    forecast = trained(NewItemShares(items, likely=0.1)).story.forecasts[0]
    assert len(forecast.warnings) == warned


def test_after_the_verdict_every_choice_is_forecast_at_its_own_level() -> None:
    made = trained().certify(1, 0.2)
    certified, certain = made.story.forecasts
    assert (certified.stage, certified.novelty) == ("may be deployed", 0.2)
    assert certified.items[0].shown == pytest.approx(0.2 * 0.88 * 10_000)
    assert certain.novelty == pytest.approx(0.05)
    made.deploy(1, sha("certain", 1))
    (deployed,) = made.story.forecasts
    assert (deployed.stage, deployed.what, deployed.even) == ("deployed", "certain", True)
    made.deploy(1, sha("pi0"), "rollback")
    assert made.story.forecasts == (), "pi0 shows no new item"
    made.observe(1, 0.2)
    assert made.story.forecasts == (), "no candidate of round 2 yet"


def test_the_forecast_is_of_the_declared_decisions() -> None:
    made = trained().certify(1, 0.2)
    made.ledger.deploy("spring", 1, sha("certified", 1, 1), by="cy", declared={"decisions": 500})
    (forecast,) = made.story.forecasts
    assert forecast.decisions == 500 and forecast.shown == pytest.approx(100)
    assert "A longer round or more novelty shows them more" in forecast.warnings[1]
    open_ended = trained().certify(1, 0.2)
    declared = {"until": "2099-01-01T00:00:00"}
    open_ended.ledger.deploy("spring", 1, sha("certified", 1, 1), by="cy", declared=declared)
    (forecast,) = open_ended.story.forecasts
    assert not forecast.declared and "as many as in the newest logs" in forecast.sentence


def test_candidates_of_an_older_version_have_no_forecast() -> None:
    made = Made().observe(0).train(1)
    assert made.story.forecasts == () and made.certify(1).story.forecasts == ()


def test_items_beyond_the_list_are_counted_together() -> None:
    n = MOST_ITEMS + 500
    learned = np.r_[0.0, np.full(n, 1 / n)]
    learned[1] += 0.1
    catalogue = Catalogue(np.arange(n + 1), np.arange(n + 1) > 0)
    shares = NewItemShares.of(ExposureAhead(learned, np.full(n + 1, 1 / n), 0.1), catalogue)
    assert (len(shares.items), shares.others, shares.items[0].id) == (MOST_ITEMS, 500, "1")
    assert shares.others_learned == pytest.approx(500 / n)
    forecast = trained(shares).story.forecasts[0]
    assert forecast.others_shown == pytest.approx(1000 * 500 / n)
    assert "2,492 more together" in str(forecast)
    assert "2,499 of 2,500 new items are forecast to be shown hardly at all" in str(forecast)


def test_where_requests_lack_new_items_fewer_are_shown() -> None:
    half = replace(UNEVEN, items=(ItemShare("kettle", 0.3, 0.25), ItemShare("lamp", 0.2, 0.25)))
    forecast = trained(half).story.forecasts[0]
    assert forecast.shown == pytest.approx(500)
    assert [item.share for item in forecast.items] == pytest.approx([0.6, 0.4])


def counts(shown: list[int], rewarded: list[int], new: list[int]) -> str:
    return ItemCounts(np.array(new, bool), np.array(shown), np.array(rewarded)).packed()


def test_the_discoverable_corpus_by_round_and_so_far() -> None:
    made = Made().observe(0, counts=counts([900, 50, 0], [90, 2, 0], [0, 0, 1]))
    # an item arrived: it has the last place
    made.round(1, 0.26, items=[("kettle", 60, 3.0), ("lamp", 120, 9.0)])
    summaries = made.campaign.summaries()
    told = [
        summaries[0],
        replace(summaries[1], counts=counts([800, 60, 60, 120], [70, 4, 3, 9], [0, 0, 1, 1])),
        replace(summaries[1], counts=counts([0, 10, 50, 99], [0, 0, 4, 0], [0, 0, 0, 1])),
    ]
    first, second, third = corpus_of(told).rounds
    assert (first.new, first.every) == (CorpusCount(1, 0, 0), CorpusCount(3, 1, 1))
    assert (second.new, second.every) == (CorpusCount(2, 1, 1), CorpusCount(4, 2, 2))
    assert second.every_so_far == CorpusCount(4, 3, 3), "50 + 60 impressions, 2 + 4 rewards"
    assert third.new == CorpusCount(1, 0, 0), "one was withdrawn"
    assert third.new_so_far == CorpusCount(2, 2, 2), "but it stays a new item of the campaign"
    loose = corpus_of(told, impressions=50, rewards=0).rounds[1]
    assert loose.new == CorpusCount(2, 2, 2)
    assert corpus_of(told, rewards=1000).rounds[1].new == CorpusCount(2, 1, 0)


def test_a_round_of_an_older_version_counts_as_far_as_it_tells() -> None:
    made = Made().observe(0).round(1, 0.26, items=[("kettle", 1500, 300.0), ("lamp", 50, 5.0)])
    told = made.story.corpus.rounds[1]
    assert told.new == CorpusCount(2, 1, None)
    assert (told.every, told.new_so_far, told.every_so_far) == (None, None, None)


def test_the_corpus_asks_for_whole_numbers() -> None:
    summaries = Made().observe(0).campaign.summaries()
    with pytest.raises(ConfigError, match=r"impressions of the discoverable corpus .* >= 1.*0"):
        corpus_of(summaries, impressions=0)
    with pytest.raises(ConfigError, match=r"rewards of the discoverable corpus .* >= 0.*-1"):
        corpus_of(summaries, rewards=-1)


def test_counts_of_a_large_catalogue_are_small_text() -> None:
    shown = np.zeros(1_000_000, dtype=np.int64)
    shown[::1000] = np.arange(1000)
    packed = ItemCounts(shown > 500, shown, shown // 10).packed()
    assert len(packed) < 100_000
    again = ItemCounts.unpacked(packed)
    assert np.array_equal(again.shown, shown) and np.array_equal(again.rewarded, shown // 10)
    assert np.array_equal(again.new, shown > 500)


def test_text_and_json_tell_both() -> None:
    made = Made().observe(0, counts=counts([900, 0], [90, 0], [0, 1]))
    made.train(1, exposure=UNEVEN, expected=EVEN).certify(1).deploy(1, sha("certified", 1, 1))
    made.observe(1, 0.26, served=sha("certified", 1, 1), counts=counts([900, 200], [90, 9], [0, 1]))
    made.train(2, exposure=UNEVEN, expected=EVEN)
    story = made.story
    text, values = str(story), json.loads(json.dumps(story.as_json()))
    assert "discoverable corpus: items shown at least 100 times" in text
    assert text.splitlines()[-1].split() == "1 1 (1) of 1 1 (1) of 1 2 (2) of 2 2 (2) of 2".split()
    assert values["corpus"]["rounds"][1]["new"] == {"items": 1, "shown": 1, "rewarded": 1}
    assert values["forecasts"][0]["warnings"][0].startswith("kettle is forecast to get 88%")
