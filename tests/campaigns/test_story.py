"""The one story of a campaign: its rules for need, margin, mood and concerns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.campaigns.made import Made, sha

from depsue.certificates import Ceiling
from depsue.promises import Floor, Promise


def test_an_observed_value_must_pass_two_standard_errors() -> None:
    outcome = Made().observe(0).round(1, 0.26).story.promises[0].outcomes[1]
    assert outcome.against == "above"
    assert replace(outcome, mean=0.12).against == "below"
    wide = 2 * (outcome.need_error**2 + (outcome.error or 0) ** 2) ** 0.5
    assert replace(outcome, mean=outcome.need + 0.99 * wide).against == "unclear"
    assert replace(outcome, mean=outcome.need + 1.01 * wide).against == "above"


def test_need_and_margin_of_each_promise() -> None:
    promises = (Promise(Floor(0.9), "clicks"), Promise(Floor(None, 0.1), "sales", "sold", 5.0))
    story = Made(promises=promises).observe(0, 0.2).round(1, 0.26).story
    clicks, sales = story.promises
    assert clicks.outcomes[0].need == pytest.approx(0.18) and clicks.outcomes[0].need_error > 0
    assert (sales.outcomes[0].need, sales.outcomes[0].need_error) == (0.1, 0.0)
    assert clicks.outcomes[0].margin is None, "the campaign had not begun"
    assert clicks.margin == pytest.approx((0.26 - 0.18) * 10_000)
    assert sales.margin == pytest.approx((0.26 - 0.1) * 10_000)
    assert story.first is clicks and story.plain is clicks


def test_margin_adds_up_and_all_rounds_are_judged_together() -> None:
    history = Made(safety="cumulative").observe(0).round(1, 0.26).round(2, 0.15).story.promises[0]
    assert history.margin == pytest.approx((0.26 + 0.15 - 2 * 0.19) * 10_000)
    assert [outcome.against for outcome in history.observed[1:]] == ["above", "below"]
    assert history.together == "above", "300 above, two standard errors are 189"
    assert Made().observe(0).story.promises[0].together == "not observed"


@pytest.mark.parametrize(
    ("made", "mood"),
    [
        (Made(), "plain"),
        (Made().observe(0).train(1), "plain"),
        (Made().observe(0).train(1).certify(1), "good"),
        (Made().observe(0).train(1).certify(1, None), "bad"),
        (Made().observe(0).round(1, 0.26), "good"),
        (Made().observe(0).round(1, 0.191), "plain"),
        (Made().observe(0).round(1, 0.15), "bad"),
    ],
)
def test_mood(made: Made, mood: str) -> None:
    assert made.story.mood == mood


def test_concerns_have_a_kind() -> None:
    each = Made(rounds=3).observe(0).round(1, 0.15).round(2, 0.14).story
    assert [(one.kind, one.rounds) for one in each.concerns] == [("round below", (1, 2))]
    lost = Made(safety="cumulative").observe(0).round(1, 0.12).story
    assert [one.kind for one in lost.concerns] == ["together below"]
    drifted = Made(no_drift=True).observe(0).round(1, 0.26).train(2)
    assert [(one.kind, one.rounds) for one in drifted.story.concerns] == [("pi0 changed", (2,))]
    steady = Made(no_drift=True).observe(0).round(1, 0.26)
    steady.train(2, ceilings={"reward": Ceiling(0.21, 0.005, 100, sha("data", 0))})
    assert steady.story.concerns == ()
    back = Made(safety="cumulative").observe(0).round(1, 0.26)
    back.train(2).certify(2).deploy(2, sha("certified", 1, 1), "rollback")
    assert [one.kind for one in back.story.concerns] == ["earlier certificate"]
    deployed = back.story.deployed
    assert deployed is not None
    assert (deployed.what, deployed.made_in, deployed.kind) == ("certified", 1, "rollback")


def test_what_to_do_next() -> None:
    made = Made(rounds=1)
    steps = [made.observe(0).story.next, made.train(1).story.next, made.certify(1).story.next]
    steps.append(made.deploy(1, sha("certified", 1, 1)).story.next)
    steps.append(made.observe(1, 0.26, served=sha("certified", 1, 1)).story.next)
    assert [step.split()[2] for step in steps] == [
        "train",
        "certify",
        "deploy",
        "observe",
        "report",
    ]
    assert made.story.over and made.story.may_deploy == ()


def test_the_text_and_the_json_are_of_one_record() -> None:
    story = Made().observe(0).round(1, 0.26).train(2).story
    values = json.loads(json.dumps(story.as_json()))
    text = str(story)
    assert values["history"][1]["certified"] == 0.2 and values["next"] in text
    assert "campaign spring: round 2 of 2" in text
    assert "deployed  the certified policy of round 1, novelty 0.200, since" in text
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.split()[:1] == ["round"])
    table = [line.split() for line in lines[start : start + 4]]
    assert table[0] == [
        "round", "verdict", "certified", "served", "rows", "novelty", "value", "floor", "margin"
    ]  # fmt: skip
    assert table[2] == [
        "1", "passed", "0.200", "certified", "10,000", "0.200", "0.2600", "0.1900", "+700.0"
    ]  # fmt: skip
    assert [test["state"] for test in values["tests"]] == ["passed", "not tested"]
